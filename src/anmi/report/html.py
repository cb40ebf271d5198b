"""The report: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import jinja2
import pandas as pd
from markupsafe import Markup

from anmi.report import figures
from anmi.report import sentences as words
from anmi.report.console import expected_sentence
from anmi.report.figures import Figure
from anmi.retrieval.kinds import in_words


class Toned(str):
    """A cell whose last line has a colour: that of a gain, ``good``, or of a loss, ``bad``, where either is certain."""

    tone = ""


class Section(NamedTuple):
    """A part of a page: sentences, a table (what follows the first line of a cell is set small), figures, a note."""

    title: str
    sentences: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[Figure | None] = ()
    note: str = ""


def page(**values: Any) -> str:
    """Return the report as one self-contained HTML document, texts escaped.

    It is UTF-8 text with plotly.js inside, compressed (2 MB). Its content security policy forbids
    fetching anything.
    """
    return _template("page.html.jinja").render(values, plotly=_plotly()).lstrip()


def with_sections(report: str, sections: Sequence[Section]) -> str:
    """Return a page with these sections at its end, their texts escaped."""
    rendered = _template("sections.html.jinja").render(sections=sections)
    before, end, after = report.rpartition("</main>")
    return before + rendered + end + after


def _template(name: str) -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    strict = jinja2.StrictUndefined
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=strict)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["embedded"] = embedded
    return environment.get_template(name)


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return packed(get_plotlyjs())


def packed(text: str) -> str:
    """Return a text compressed and in base64, which no text can break out of; equal texts give equal results.

    The page's script has it back by ``unpacked``.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(packed("</script>"))).decode()
    '</script>'
    """
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")


def embedded(figure: Figure) -> Markup:
    """Return the specification of a figure as JSON that cannot end the script element it stands in."""
    spec = json.dumps(figure.spec, allow_nan=False)
    for character in "<>&":
        spec = spec.replace(character, f"\\u{ord(character):04x}")
    return Markup(spec)


_LINKING: Final = {
    "linking_accuracy": "first entity right",
    "linking_mrr_10": "MRR@10 over entities",
}


def render(found: Mapping[str, Any]) -> str:
    """Return the report as one self-contained HTML document.

    By name it is given the inputs of the node ``render_report``: artifacts, and the parameters
    encoder and recipe.
    """
    results = found["results"]
    info = found["collection_info"]
    recipe = found["recipe"]
    measured, compared = (pd.DataFrame(results[name]) for name in ("rows", "comparisons"))
    facts = {"collection": info["collection"], "recipe": recipe, "encoder": found["encoder"]}
    facts["prompts"] = _prompts(found["training_summary"], found["encoder_info"])
    facts["marks"] = results.get("marks")
    counts = {
        "documents": info["documents"],
        **{f"{split} queries": count for split, count in info["queries"].items()},
    }
    facts |= {
        name: f"{count:,}"
        for name, count in (*counts.items(), ("training rows", len(found["training_rows"])))
    }
    notices = [words.composition(results.get("search")), *words.notices(results, measured)]
    hidden = ("reliability", "judges", "models")
    parameters = {
        "collection": info,
        "mining encoder": found["encoder_info"],
        "training": found["training_summary"],
    } | {
        name.replace("fused_", "fused "): {
            key: value for key, value in found[name].items() if key not in hidden
        }
        for name in ("cross_encoder", "fused_judge")
    }
    sections = _sections(found, measured, compared)
    return page(
        title=f"{recipe} on {info['collection']}",
        where=words.where(
            info["collection"], recipe, str(results.get("run") or ""), results["date"]
        ),
        facts={name: fact for name, fact in facts.items() if fact},
        verdict=re.sub("p ([<=]) ", "p\u00a0\\1\u00a0", words.verdict(measured, compared)),
        sentences=[*filter(None, notices)],
        sections=[
            section
            for section in sections
            if section.sentences or section.rows or any(section.figures)
        ],
        versions=" · ".join(f"{name} {value}" for name, value in results["versions"].items()),
        parameters=json.dumps(parameters, indent=2, ensure_ascii=False, default=str),
    )


def _prompts(training_summary: Mapping[str, Any], encoder_info: Mapping[str, Any]) -> str:
    """Say what the encoder was trained and measured with, and what was mined with where that is something else."""
    trained, mined = (part.get("prompts") for part in (training_summary, encoder_info))
    texts = [in_words(trained)] if trained else []
    return "; ".join(texts + ([f"mining: {in_words(mined)}"] if mined and mined != trained else []))


def _sections(
    found: Mapping[str, Any], results: pd.DataFrame, comparisons: pd.DataFrame
) -> Iterator[Section]:
    # The search of all parts comes first.
    names = words.systems(results)[::-1]
    yield Section(
        "Results",
        [] if names else ["No test query was asked, so there are no results."],
        ["system", *map(words.metric_name, words.HEADLINE_METRICS)],
        [
            [
                words.system_name(name),
                *(_result(results, comparisons, name, of) for of in words.HEADLINE_METRICS),
            ]
            for name in names
        ],
        [figures.metrics(results)],
        "Below each value stands its 95 % interval over queries (bootstrap). Δ is the difference"
        " from zero-shot on the same queries, with the p-value of a paired permutation test.",
    )
    counts = words.bucket_counts(results)
    by_name = {
        name: [_value(words.lookup(results, name, words.METRIC, of)) for of in counts]
        for name in names
    }
    yield Section(
        "Labelled, unlabelled and new documents",
        [
            *filter(
                None, [found["results"].get("new_documents"), words.warning(results, comparisons)]
            )
        ],
        ["system", *(words.bucket_name(name, count) for name, count in counts.items())],
        [[words.system_name(name), *values] for name, values in by_name.items() if counts],
        [figures.buckets(results)],
        "nDCG@10. Labelled: a training label names one of the query's relevant documents. New:"
        " mining and training saw none of them, as with documents that come later. Pseudo: made of"
        " new documents, beside too few labelled queries. Unlabelled: all other queries.",
    )
    yield Section(
        "Parts of the search",
        [],
        words.PART_COLUMNS,
        words.part_rows(found["results"].get("search")),
        [],
        "nDCG@10 is that of dev queries: of the part alone, and of the search without it. The time"
        " of a query is the median on the machine of the run; MB are those of index and model.",
    )
    yield from _mined(found["selection_summary"], found["results"]["false_negatives"])
    shown = figures.distributions(found["selection_summary"]["distributions"])
    yield Section("Scores of positives, kept and rejected candidates", figures=shown)
    judges = words.judge_entries(found["cross_encoder"], found["fused_judge"])
    yield Section(
        "Judges",
        [],
        ["judge", "AUC", "calibration error", "judged pairs", "calibrated by"],
        [_judge(name, entry) for name, entry in judges.items()],
        figures.judges(judges),
        "AUC: how often a judge scores a document labelled relevant above one that is not."
        " Calibration error: mean distance between the probabilities a judge gives and the shares"
        " observed.",
    )
    llm = found["llm_judge"]
    read = [
        [
            row["query"],
            row["snippet"] or "–",
            f"{row['grade']:.0f}",
            f"{row['before']:.2f}",
            f"{row['after']:.2f}",
        ]
        for row in llm.get("examples", ())
    ]
    header = ["query", "quoted from the document", "grade", "P before", "P after"]
    yield Section("Read by a language model", list(filter(None, [llm.get("said")])), header, read)
    hardness = found["hardness_results"]
    metric = str(hardness.get("metric", ""))
    yield Section(
        "By the hardness of queries",
        figures=[figures.hardness(hardness.get("profile", ()), metric)],
        note="Hardness depends on the text alone: its length, the variety of its characters, its"
        " punctuation and words of another script or language.",
    )
    by_dimensions = [[size, f"{value:.3f}"] for size, value in found["dimension_metrics"].items()]
    yield Section(
        "By the number of dimensions",
        [],
        [f"dimensions of {found['recipe']}", words.metric_name("ndcg@10")],
        by_dimensions,
    )
    yield _pseudo_queries(found["pseudo_query_summary"])
    drawn = [
        figures.alphas(found["training_summary"]),
        figures.training(found["training_log"]),
        figures.sources(found["training_log"]),
        figures.latent_neighbours(found["latent_neighbours"]),
    ]
    yield Section("Training", figures=drawn)
    yield from _facts(found["knowledge_metrics"], found["neighbours"])


def _mined(
    selection: Mapping[str, Any], false_negatives: Mapping[str, Any] | None
) -> Iterator[Section]:
    truth = "; ".join(map(str.strip, words.false_negatives_lines(false_negatives)))
    sentences = [
        f"{text[0].upper()}{text[1:]}."
        for text in (truth, expected_sentence(selection.get("expected")))
        if text
    ]
    steps = [
        ["\n".join(filter(None, row[:2])), *row[2:]]
        for row in words.funnel_rows(selection["funnel"])
    ]
    drawn = [
        figures.funnel(selection["funnel"]),
        figures.relevance_by_nearness(selection.get("by_nearness")),
    ]
    yield Section(
        "From candidates to negatives",
        sentences,
        ["step", "candidates", "share", "queries"],
        steps,
        [*drawn, figures.elo_gap(selection["gaps"].get("elo") or {})],
        "kedro anmi explain QUERY shows what became of each candidate of a query.",
    )
    origins = [
        [f"{kind}: {name}", *cells]
        for kind, name, *cells in words.origin_rows(selection.get("origins") or {})
    ]
    yield Section("Where the negatives came from", [], ["origin", "negatives", "share"], origins)


def _pseudo_queries(summary: Mapping[str, Any]) -> Section:
    kinds = summary.get("kinds") or {}
    rows = []
    for kind, counts in kinds.items():
        dropped = sorted((counts.get("dropped") or {}).items(), key=lambda item: -item[1])
        reasons = (
            ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in dropped) or "–"
        )
        rows.append([kind, f"{counts['made']:,}", f"{counts['kept']:,}", reasons])
    if not rows:
        return Section("What the corpus taught")
    sentence = (
        f"{sum(counts['kept'] for counts in kinds.values()):,} pseudo-queries were made of"
        f" {summary['documents']:,} documents and kept. Training sees nothing of {summary['new']:,}"
        " documents, to measure what it does with documents that come later."
    )
    return Section("What the corpus taught", [sentence], ["kind", "made", "kept", "dropped"], rows)


def _facts(
    knowledge: Mapping[str, Mapping[str, Any]], neighbours: Mapping[str, Any]
) -> Iterator[Section]:
    """Yield what a graph lets one measure: how well facts differ from false variants, and which entity is found."""
    shares = neighbours.get("shares") or {}
    tested = {
        system: measured for system, measured in knowledge.items() if "factuality" in measured
    }
    # An entity is more than the one document about it only where the shares differ.
    if not tested and len(set(shares.values())) <= 1:
        return
    kinds = dict.fromkeys(kind for measured in tested.values() for kind in measured["factuality"])
    rows = []
    for kind in ("", *kinds):
        cells = [_of_kind(measured, kind) for measured in tested.values()]
        rows.append(
            [
                kind or "all false kinds",
                *(_value(cell, name) for cell in cells for name in ("auc", "paired")),
            ]
        )
    columns = [
        f"{words.system_name(system)}: {name}"
        for system in tested
        for name in ("AUC", "own nearer")
    ]
    yield Section(
        "Facts: the own document against false variants of it",
        [],
        ["kind", *columns],
        rows if tested else [],
        note=(
            "AUC: how often the similarity of a held-out query to its own document lies above that"
            " of any query to a variant. Own nearer: how often the own document is nearer to its"
            " query than a variant. A half is chance."
        ),
    )
    linked = [
        [
            words.system_name(system),
            *(_value(measured, name) for name in _LINKING),
            f"{measured['linking_queries']:,}",
        ]
        for system, measured in knowledge.items()
    ]
    near = {name: f"{100 * share:.1f}\u00a0%" for name, share in shares.items()}
    sentence = (
        f"Of the {neighbours['depth']} nearest documents of {neighbours['queries']:,} queries"
        f" {near['right']} are labelled relevant, {near['entails']} state all facts of a relevant"
        f" one, and {near['same_uri']} are about the right entity."
        if neighbours.get("queries")
        else ""
    )
    yield Section(
        "Entities: whose document is found",
        [sentence] if sentence else [],
        ["system", *_LINKING.values(), "queries"],
        linked,
        note=(
            "Documents found are replaced by the entity they are about, each entity at its first"
            " document."
        ),
    )


def _of_kind(found: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    if kind:
        return dict(found["factuality"].get(kind) or {})
    return {name.removeprefix("factuality_"): value for name, value in found.items()}


def _result(results: pd.DataFrame, comparisons: pd.DataFrame, system: str, metric: str) -> str:
    change = (
        None if system == words.ZERO_SHOT else words.difference(comparisons, system, metric=metric)
    )
    value = _value(words.lookup(results, system, metric))
    if not change:
        return value
    cell = Toned(
        f"{value}\nΔ {words.signed(change['difference'])}, {words.p_value(change['p_value'])}"
    )
    cell.tone = "good" if change["low"] > 0 else "bad" if change["high"] < 0 else ""
    return cell


def _value(found: Mapping[str, Any] | None, name: str = "value") -> str:
    """Write a value, and below it its interval."""
    value = (found or {}).get(name)
    if found is None or value is None or not math.isfinite(value):
        return "–"
    ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    low, high = (found.get(end) for end in ends)
    return (
        f"{value:.3f}"
        if low is None or high is None
        else f"{value:.3f}\n{words.between(low, high)}"
    )


def _judge(name: str, entry: Mapping[str, Any]) -> list[str]:
    reliability = entry.get("reliability") or {}
    pairs = sum(row["count"] for row in reliability.get("bins") or [])
    error = {"value": reliability.get("expected_calibration_error") if pairs else None}
    return [
        name,
        _value({"value": entry.get("auc")}),
        _value(error),
        f"{pairs:,}" if pairs else "–",
        entry.get("method") or "not stated",
    ]
