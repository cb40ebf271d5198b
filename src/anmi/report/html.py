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
    """A cell whose last line has the colour of a gain, ``good``, or of a loss, ``bad``."""

    tone = ""


class Section(NamedTuple):
    """Sentences, a table, figures and a note; later lines of a cell are set small."""

    title: str
    sentences: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[Figure | None] = ()
    note: str = ""

    @property
    def has_content(self) -> bool:
        """Whether there is more than a header and a note."""
        return bool(self.sentences or self.rows or any(self.figures))


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
    """Return a text compressed and in base64, which no text can break out of.

    The page's script has it back by ``unpacked``.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(packed("</script>"))).decode()
    '</script>'
    """
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")


def embedded(figure: Figure) -> Markup:
    """Return the specification of a figure as JSON that cannot end its script element."""
    spec = json.dumps(figure.spec, allow_nan=False)
    for character in "<>&":
        spec = spec.replace(character, f"\\u{ord(character):04x}")
    return Markup(spec)


_LINKING: Final = {
    "linking_accuracy": "first entity right",
    "linking_mrr_10": "MRR@10 over entities",
}


def render(artifacts: Mapping[str, Any]) -> str:
    """Return the report as one self-contained HTML document.

    ``artifacts`` are the inputs of the node ``render_report`` by name, the parameters encoder and
    recipe among them.
    """
    results = artifacts["results"]
    info = artifacts["collection_info"]
    recipe = artifacts["recipe"]
    metrics, comparisons = (pd.DataFrame(results[name]) for name in ("rows", "comparisons"))
    counts = {"documents": info["documents"]}
    counts |= {f"{split} queries": count for split, count in info["queries"].items()}
    counts["training rows"] = len(artifacts["training_rows"])
    facts = {
        "collection": info["collection"],
        "recipe": recipe,
        "encoder": artifacts["encoder"],
        "prompts": _prompts(artifacts["training_summary"], artifacts["encoder_info"]),
        "marks": results.get("marks"),
        **{name: f"{count:,}" for name, count in counts.items()},
    }
    notices = [words.composition(results.get("search")), *words.notices(results, metrics)]
    sections = _sections(artifacts, metrics, comparisons)
    run_id = str(results.get("run") or "")
    return page(
        title=f"{recipe} on {info['collection']}",
        where=words.where(info["collection"], recipe, run_id, results["date"]),
        facts={name: fact for name, fact in facts.items() if fact},
        verdict=re.sub("p ([<=]) ", "p\u00a0\\1\u00a0", words.verdict(metrics, comparisons)),
        sentences=[notice for notice in notices if notice],
        sections=[section for section in sections if section.has_content],
        versions=" · ".join(f"{name} {value}" for name, value in results["versions"].items()),
        parameters=json.dumps(_parameters(artifacts), indent=2, ensure_ascii=False, default=str),
    )


def _parameters(artifacts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page lists of settings and summaries."""
    parameters = {
        "collection": artifacts["collection_info"],
        "mining encoder": artifacts["encoder_info"],
        "training": artifacts["training_summary"],
    }
    for name, title in (("cross_encoder", "cross_encoder"), ("fused_judge", "fused judge")):
        parameters[title] = {
            key: value
            for key, value in artifacts[name].items()
            if key not in ("reliability", "judges", "models")
        }
    return parameters


def _prompts(training_summary: Mapping[str, Any], encoder_info: Mapping[str, Any]) -> str:
    """Return the prompts of training and evaluation, and those of mining where they differ."""
    trained = training_summary.get("prompts")
    mined = encoder_info.get("prompts")
    texts = [in_words(trained)] if trained else []
    if mined and mined != trained:
        texts.append(f"mining: {in_words(mined)}")
    return "; ".join(texts)


def _sections(
    artifacts: Mapping[str, Any], metrics: pd.DataFrame, comparisons: pd.DataFrame
) -> Iterator[Section]:
    """Yield the sections in the order of the page; some have nothing to show."""
    results = artifacts["results"]
    summary = artifacts["selection_summary"]
    yield _results(metrics, comparisons)
    yield _buckets(results, metrics, comparisons)
    yield Section(
        "Parts of the search",
        header=words.PART_COLUMNS,
        rows=words.part_rows(results.get("search")),
        note="nDCG@10 is that of dev queries: of the part alone, and of the search without it. The"
        " time of a query is the median on the machine of the run; MB are those of index and"
        " model.",
    )
    yield from _mined(summary, results["false_negatives"])
    yield Section(
        "Scores of positives, kept and rejected candidates",
        figures=figures.distributions(summary["distributions"]),
    )
    yield _judges(artifacts)
    yield _language_model(artifacts["llm_judge"])
    hardness = artifacts["hardness_results"]
    profile = figures.hardness(hardness.get("profile", ()), str(hardness.get("metric", "")))
    yield Section(
        "By the hardness of queries",
        figures=[profile],
        note="Hardness depends on the text alone: its length, the variety of its characters, its"
        " punctuation and words of another script or language.",
    )
    by_dimensions = artifacts["dimension_metrics"].items()
    yield Section(
        "By the number of dimensions",
        header=[f"dimensions of {artifacts['recipe']}", words.metric_name("ndcg@10")],
        rows=[[size, f"{value:.3f}"] for size, value in by_dimensions],
    )
    yield _pseudo_queries(artifacts["pseudo_query_summary"])
    log = artifacts["training_log"]
    yield Section(
        "Training",
        figures=[
            figures.alphas(artifacts["training_summary"]),
            figures.training(log),
            figures.sources(log),
            figures.latent_neighbours(artifacts["latent_neighbours"]),
        ],
    )
    knowledge = artifacts["knowledge_metrics"]
    neighbours = artifacts["neighbours"]
    shares = neighbours.get("shares") or {}
    tested = {system: values for system, values in knowledge.items() if "factuality" in values}
    # An entity is more than the one document about it only where the shares differ.
    if tested or len(set(shares.values())) > 1:
        yield _facts(tested)
        yield _entities(knowledge, neighbours, shares)


def _results(metrics: pd.DataFrame, comparisons: pd.DataFrame) -> Section:
    """Return the headline metrics of every system, the search of all parts first."""
    rows = []
    for system in words.systems(metrics)[::-1]:
        cells = [_result(metrics, comparisons, system, name) for name in words.HEADLINE_METRICS]
        rows.append([words.system_name(system), *cells])
    return Section(
        "Results",
        [] if rows else ["No test query was asked, so there are no results."],
        ["system", *map(words.metric_name, words.HEADLINE_METRICS)],
        rows,
        [figures.metrics(metrics)],
        "Below each value stands its 95 % interval over queries (bootstrap). Δ is the difference"
        " from zero-shot on the same queries, with the p-value of a paired permutation test.",
    )


def _buckets(
    results: Mapping[str, Any], metrics: pd.DataFrame, comparisons: pd.DataFrame
) -> Section:
    """Return nDCG@10 by what training saw of a query's relevant documents."""
    counts = words.bucket_counts(metrics)
    rows = []
    for system in words.systems(metrics)[::-1] if counts else ():
        cells = [_value(words.lookup(metrics, system, words.METRIC, bucket)) for bucket in counts]
        rows.append([words.system_name(system), *cells])
    sentences = [results.get("new_documents"), words.warning(metrics, comparisons)]
    return Section(
        "Labelled, unlabelled and new documents",
        [sentence for sentence in sentences if sentence],
        ["system", *(words.bucket_name(bucket, count) for bucket, count in counts.items())],
        rows,
        [figures.buckets(metrics)],
        "nDCG@10. Labelled: a training label names one of the query's relevant documents. New:"
        " mining and training saw none of them, as with documents that come later. Pseudo: made of"
        " new documents, beside too few labelled queries. Unlabelled: all other queries.",
    )


def _judges(artifacts: Mapping[str, Any]) -> Section:
    entries = words.judge_entries(artifacts["cross_encoder"], artifacts["fused_judge"])
    return Section(
        "Judges",
        header=["judge", "AUC", "calibration error", "judged pairs", "calibrated by"],
        rows=[_judge(name, entry) for name, entry in entries.items()],
        figures=figures.judges(entries),
        note="AUC: how often a judge scores a document labelled relevant above one that is not."
        " Calibration error: mean distance between the probabilities a judge gives and the shares"
        " observed.",
    )


def _language_model(summary: Mapping[str, Any]) -> Section:
    rows = [
        [
            example["query"],
            example["snippet"] or "–",
            f"{example['grade']:.0f}",
            f"{example['before']:.2f}",
            f"{example['after']:.2f}",
        ]
        for example in summary.get("examples", ())
    ]
    return Section(
        "Read by a language model",
        [summary["said"]] if summary.get("said") else [],
        ["query", "quoted from the document", "grade", "P before", "P after"],
        rows,
    )


def _mined(
    selection: Mapping[str, Any], false_negatives: Mapping[str, Any] | None
) -> Iterator[Section]:
    """Yield what became of the candidates, and where the negatives came from."""
    truth = "; ".join(map(str.strip, words.false_negatives_lines(false_negatives)))
    texts = [truth, expected_sentence(selection.get("expected"))]
    rows = []
    for step, rule, *cells in words.funnel_rows(selection["funnel"]):
        rows.append([f"{step}\n{rule}" if rule else step, *cells])
    yield Section(
        "From candidates to negatives",
        [f"{text[0].upper()}{text[1:]}." for text in texts if text],
        ["step", "candidates", "share", "queries"],
        rows,
        [
            figures.funnel(selection["funnel"]),
            figures.relevance_by_nearness(selection.get("by_nearness")),
            figures.elo_gap(selection["gaps"].get("elo") or {}),
        ],
        "kedro anmi explain QUERY shows what became of each candidate of a query.",
    )
    origins = words.origin_rows(selection.get("origins") or {})
    yield Section(
        "Where the negatives came from",
        header=["origin", "negatives", "share"],
        rows=[[f"{kind}: {name}", *cells] for kind, name, *cells in origins],
    )


def _pseudo_queries(summary: Mapping[str, Any]) -> Section:
    kinds = summary.get("kinds") or {}
    rows = []
    for kind, counts in kinds.items():
        dropped = sorted((counts.get("dropped") or {}).items(), key=lambda item: -item[1])
        reasons = [f"{reason.replace('_', ' ')} {count:,}" for reason, count in dropped]
        cells = [f"{counts['made']:,}", f"{counts['kept']:,}", ", ".join(reasons) or "–"]
        rows.append([kind, *cells])
    if not rows:
        return Section("What the corpus taught")
    sentence = (
        f"{sum(counts['kept'] for counts in kinds.values()):,} pseudo-queries were made of"
        f" {summary['documents']:,} documents and kept. Training sees nothing of {summary['new']:,}"
        " documents, to measure what it does with documents that come later."
    )
    return Section("What the corpus taught", [sentence], ["kind", "made", "kept", "dropped"], rows)


def _facts(tested: Mapping[str, Mapping[str, Any]]) -> Section:
    """Return how well systems tell facts from false variants."""
    kinds = dict.fromkeys(kind for values in tested.values() for kind in values["factuality"])
    rows = []
    for kind in ("", *kinds) if tested else ():
        row = [kind or "all false kinds"]
        for values in tested.values():
            entry = _of_kind(values, kind)
            row += [_value(entry, "auc"), _value(entry, "paired")]
        rows.append(row)
    header = ["kind"]
    for system in tested:
        name = words.system_name(system)
        header += [f"{name}: AUC", f"{name}: own nearer"]
    return Section(
        "Facts: the own document against false variants of it",
        header=header,
        rows=rows,
        note="AUC: how often the similarity of a held-out query to its own document lies above that"
        " of any query to a variant. Own nearer: how often the own document is nearer to its"
        " query than a variant. A half is chance.",
    )


def _entities(
    knowledge: Mapping[str, Mapping[str, Any]],
    neighbours: Mapping[str, Any],
    shares: Mapping[str, float],
) -> Section:
    """Return how well systems find entities rather than documents."""
    rows = []
    for system, values in knowledge.items():
        cells = [_value(values, name) for name in _LINKING]
        rows.append([words.system_name(system), *cells, f"{values['linking_queries']:,}"])
    sentences = []
    if neighbours.get("queries"):
        near = {name: f"{100 * share:.1f}\u00a0%" for name, share in shares.items()}
        sentences = [
            f"Of the {neighbours['depth']} nearest documents of {neighbours['queries']:,} queries"
            f" {near['right']} are labelled relevant, {near['entails']} state all facts of a"
            f" relevant one, and {near['same_uri']} are about the right entity."
        ]
    return Section(
        "Entities: whose document is found",
        sentences,
        ["system", *_LINKING.values(), "queries"],
        rows,
        note="Documents found are replaced by the entity they are about, each entity at its first"
        " document.",
    )


def _of_kind(values: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the metrics of a kind of false variants; those of all kinds where it is empty."""
    if kind:
        return dict(values["factuality"].get(kind) or {})
    return {name.removeprefix("factuality_"): value for name, value in values.items()}


def _result(results: pd.DataFrame, comparisons: pd.DataFrame, system: str, metric: str) -> str:
    """Write a metric of a system, and below it the difference from zero-shot."""
    value = _value(words.lookup(results, system, metric))
    if system == words.ZERO_SHOT:
        return value
    change = words.difference(comparisons, system, metric=metric)
    if not change:
        return value
    difference = words.signed(change["difference"])
    cell = Toned(f"{value}\nΔ {difference}, {words.p_value(change['p_value'])}")
    if change["low"] > 0:
        cell.tone = "good"
    elif change["high"] < 0:
        cell.tone = "bad"
    return cell


def _value(values: Mapping[str, Any] | None, name: str = "value") -> str:
    """Write a value, and below it its interval."""
    value = (values or {}).get(name)
    if values is None or value is None or not math.isfinite(value):
        return "–"
    prefix = "" if name == "value" else f"{name}_"
    low, high = (values.get(f"{prefix}{bound}") for bound in ("low", "high"))
    if low is None or high is None:
        return f"{value:.3f}"
    return f"{value:.3f}\n{words.between(low, high)}"


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
