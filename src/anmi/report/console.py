"""The tables that commands print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pandas as pd
from rich.markup import escape
from rich.table import Table

from anmi.corpus.sentences import excerpt
from anmi.errors import visible
from anmi.evaluation.generalisation import FEW
from anmi.judging.expected import share_sentence
from anmi.report import sentences as words
from anmi.search.hybrid import Hit

NOTHING_MINED: Final = (
    "No negatives were mined, since the collection has no training labels; training rests on"
    " pseudo-queries."
)
AUDITED: Final = (
    "recipe",
    "main threshold",
    "false negatives",
    "95 % interval",
    "gap",
    "coverage",
    "queries lost",
    "negatives",
)
_SNIPPET: Final = 120
# A path is shown whole, on several lines if need be, so that the file can be opened.
_ID: Final = 200


def _table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1
) -> Table:
    """Return a table whose first columns are texts, the others numbers; texts are no markup."""
    table = Table(title=escape(title), title_justify="left")
    for place, name in enumerate(columns):
        table.add_column(escape(name), justify="left" if place < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(visible(cell)) for cell in row))
    return table


def results_table(results: pd.DataFrame, comparisons: pd.DataFrame) -> Table:
    """Return the systems as rows, the headline metrics as columns.

    The last columns show nDCG@10 against each baseline; comparisons may be empty. The search of
    all parts comes first.
    """
    baselines = (words.BM25, words.ZERO_SHOT)
    rows = []
    for system in reversed(words.systems(results)):
        entries = [words.lookup(results, system, metric) for metric in words.HEADLINE_METRICS]
        changes = [words.difference(comparisons, system, baseline=name) for name in baselines]
        rows.append(
            [
                words.system_name(system),
                *(f"{entry['value']:.3f}" if entry else "–" for entry in entries),
                *(words.told(change) if change else "–" for change in changes),
            ]
        )
    names = [words.metric_name(metric).replace("@", "\n@") for metric in words.HEADLINE_METRICS]
    against = [f"Δ nDCG@10\nvs {words.system_name(name)}\n[95 % interval]" for name in baselines]
    columns = ["system", *names, *against]
    return _table("Results on the test queries", columns, rows)


def bucket_table(results: pd.DataFrame) -> Table | None:
    """Return nDCG@10 on labelled, unlabelled and new documents by system; None without buckets."""
    counts = words.bucket_counts(results)
    rows = []
    for system in reversed(words.systems(results)):
        entries = [words.lookup(results, system, words.METRIC, name) for name in counts]
        # Two decimals, so that three buckets fit a terminal.
        ends = [
            words.between(e["low"], e["high"], "{:.2f}".format, ", ") if e else "" for e in entries
        ]
        cells = [
            f"{e['value']:.3f} [{end}]" if e else "–" for e, end in zip(entries, ends, strict=True)
        ]
        rows.append([words.system_name(system), *cells])
    columns = [
        f"{name}\n{count:,} {'query' if count == 1 else 'queries'}"
        + ("\ntoo few" if count < FEW else "")
        for name, count in counts.items()
    ]
    title = f"{words.metric_name(words.METRIC)} on labelled, unlabelled and new documents"
    return _table(title, ["system", *columns], rows) if counts else None


def parts_table(search: Mapping[str, Any] | None) -> Table | None:
    """Return what each part of the search weighs, brings and costs; None where nothing is known."""
    rows = words.part_rows(search)
    return _table("Parts of the search, by dev queries", words.PART_COLUMNS, rows) if rows else None


def rejections_table(funnel: Sequence[Mapping[str, Any]]) -> Table:
    """Return what became of the candidates, step by step."""
    columns = ("step", "rule", "candidates", "share", "queries")
    return _table("From candidates to negatives", columns, words.funnel_rows(funnel), 2)


def source_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return what each source gave, from :class:`anmi.evaluation.diagnostics.BySource`."""
    cells = [
        [
            str(row["source"]),
            *(f"{row[name]:,}" for name in ("queries", "passed", "failed")),
            words.percent(row["passed"], row["queries"]),
            *(f"{row[name]:,}" for name in ("rows", "examples")),
            *(
                (
                    "–"
                    if row[f"negatives_{name}"] is None
                    else f"{round(row[f'negatives_{name}'], 2):,}"
                )
                for name in ("mean", "min", "max")
            ),
        ]
        for row in rows
    ]
    columns = (
        "source",
        "queries",
        "passed",
        "failed",
        "pass rate",
        "rows",
        "examples",
        "mean",
        "min",
        "max",
    )
    table = _table("Negatives by source", columns, cells)
    table.caption = "passed: the positive is within the BM25 top of its query; "
    table.caption += "examples: positives and negatives; mean, min, max: negatives per row"
    return table


def origins_table(origins: Mapping[str, Mapping[str, int]]) -> Table:
    """Return where the negatives came from: by source, and by tier of the back-off."""
    columns = ("by", "origin", "negatives", "share")
    return _table("Where the negatives came from", columns, words.origin_rows(origins), 2)


def expected_sentence(expected: Mapping[str, Any] | None) -> str:
    """Say which share of the negatives the judge expects to be relevant; empty if it judged none.

    From :class:`anmi.evaluation.diagnostics.Expected`.

    Examples
    --------
    >>> interval = {"share": 0.021, "low": 0.01, "high": 0.042}
    >>> expected_sentence(interval | {"judged": 150, "total": 150, "doubtful": 30})
    'The judge expects 2.1 % (1 to 4.2) of 150 negatives to be relevant; 30 were taken in doubt'
    >>> interval = {"share": 0.2, "low": 0.1, "high": 0.4}
    >>> expected_sentence(interval | {"judged": 9, "doubtful": 0, "warning": "many"})
    'The judge expects 20 % (10 to 40) of 9 negatives to be relevant. Warning: many'
    """
    if not expected:
        return ""
    share = share_sentence(*(expected[name] for name in ("share", "low", "high")))
    if expected.get("basis") == "nothing":
        share = f"at most {100 * expected['high']:.2g} %"
    sentence = f"The judge expects {share} of {expected['judged']:,} negatives to be relevant"
    if expected.get("basis") == "other collections":
        sentence += (
            ", a share assumed from other collections since few queries here have several labels"
        )
    sentence += f"; {expected['doubtful']:,} were taken in doubt" if expected["doubtful"] else ""
    return sentence + (f". Warning: {expected['warning']}" if expected.get("warning") else "")


def hits_table(question: str, hits: Sequence[Hit], parts: Sequence[str]) -> Table:
    """Return the hits of a question, best first, with rank and score by each part of the search.

    A part that does not list a hit has –; documents of the same text are counted behind the first.
    """
    names = ["BM25" if part == "bm25" else part for part in parts]
    columns = [f"{name}\n{figure}" for name in names for figure in ("rank", "score")]
    rows = []
    for hit in hits:
        text = " ".join(excerpt(hit.text, question, _SNIPPET).split())
        text = f"{hit.title} – {text}" if hit.title else text
        document = _cut(hit.document_id)
        if hit.copies:
            document = f"{document} ({1 + len(hit.copies)} copies)"
        cells = [str(hit.rank), document, text, f"{hit.score:.3f}"]
        for part in parts:
            rank = hit.ranks.get(part)
            score = hit.scores.get(part)
            cells += ["–" if rank is None else str(rank), "–" if score is None else f"{score:.3f}"]
        rows.append(cells)
    headers = ("#", "document", "title and text", "score", *columns)
    return _table(visible(_cut(question)), headers, rows, 3)


def _cut(text: str) -> str:
    return text if len(text) <= _ID else f"{text[: _ID - 1]}…"


def recipes_table(recipes: pd.DataFrame, summary: Mapping[str, Any]) -> Table:
    """Return every recipe as it is: false negatives, gap and coverage, the cleanest first.

    Rows are those of :func:`anmi.evaluation.audit.audit_recipes`; the summary has the
    ``collection`` and, under ``audit``, the numbers of ``queries`` and, by kind, of ``planted``
    documents.
    """
    audit = summary["audit"]
    planted = ", ".join(f"{count:,} {kind}" for kind, count in audit["planted"].items())
    title = f"Audit of {summary['collection']}: {audit['queries']:,} queries, planted {planted}"
    return _table(title, AUDITED, audited(recipes), 2)


def audited(recipes: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the cells of every recipe as it is, the cleanest first."""
    cells: list[tuple[str, ...]] = []
    if recipes.empty:
        return cells
    for row in recipes.sort_values("false_negative_rate", kind="stable").to_dict("records"):
        threshold = "" if math.isnan(row["threshold"]) else f" = {row['threshold']:g}"
        rate, low, high = (row[f"false_negative_rate{end}"] for end in ("", "_low", "_high"))
        shares = (
            [f"{rate:.2%}", f"{low:.2%} to {high:.2%}", f"{row['gap']:.3f}"]
            if math.isfinite(rate)
            else ["–"] * 3
        )
        figures = [
            *shares,
            f"{row['coverage']:.1%}",
            f"{row['queries_lost']:,}",
            f"{row['negatives']:,}",
        ]
        setting = f"{row['setting']}{threshold}" if row["setting"] else "none"
        cells.append(
            (
                row["recipe"],
                setting,
                *(["cannot be run here", *[""] * 5] if row["failed"] else figures),
            )
        )
    return cells


def judges_table(judges: pd.DataFrame) -> Table:
    """Return every judgment with its AUC, the best first, from an audit of judges."""
    rows = []
    for row in judges.to_dict("records"):
        measured = f"{row['auc']:.3f}", words.between(row["auc_low"], row["auc_high"])
        auc = ("–", "–") if math.isnan(row["auc"]) else measured
        rows.append(
            (row["judge"], *auc, *(f"{row[name]:,}" for name in ("planted", "others", "missing")))
        )
    columns = ("judge", "AUC", "95 % interval", "planted", "others", "not judged")
    return _table("Judges: AUC on planted against other candidates", columns, rows)
