"""What a comparison of training data found: the lines that a run logs, and the page."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any, Final

from anmi.report.figures import NEUTRAL, SCORES, TRAINED_COLOURS, Figure, plot_layout
from anmi.report.page import embedded, page

_ORDER: Final = ("strong", "slight", "none")
_NAMES: Final = {
    "query_length": "length of queries (tokens)",
    "document_length": "length of documents (tokens)",
    "query_hardness": "hardness of queries (0 to 1)",
    "positives_per_query": "positives per query",
    "consistent": "queries that passed the consistency filter",
    "all_negatives": "rows with all negatives",
    "dropped": "rows dropped",
    "near_duplicates": "documents with a near-duplicate",
    "training_labels": "training labels",
    "training_rows": "training rows",
    "documents": "documents",
    **{f"{split}_queries": f"{split} queries" for split in ("train", "dev", "test")},
}
_KINDS: Final = {"positive": "of positives", "negative": "of negatives", "gap": "of the positive minus the negatives'"}
_VERDICTS: Final = {
    "none": "The training data are like the champion's: nothing differs both surely and by much.",
    "slight": "The training data differ slightly from the champion's.",
    "strong": "The training data differ strongly from the champion's.",
}


def render(drift: Mapping[str, Any], current: Mapping[str, Any], reference: Mapping[str, Any] | None = None) -> str:
    """Return a drift of :func:`anmi.evaluation.drift.drift` as one self-contained HTML document.

    The profiles are those of today's and of the champion's data, the latter None or empty where there is no champion.
    """
    made = current.get("made_with") or {}
    before = reference if drift["compared"] else None
    return page(
        "drift.html.jinja",
        title=made.get("collection", "training data"),
        made={name: str(value) for name, value in made.items() if name != "collection"} | {"tokens": current["tokens"]},
        sentence=verdict_sentence(drift),
        findings=findings(drift),
        differences=differences(drift),
        tables={
            kind: [(drift_name(name, kind), row) for name, row in sorted(drift.get(kind, {}).items(), key=_by_verdict)]
            for kind in ("counts", "shares", "new_terms", "distributions")
        },
        counts={drift_name(name): count for name, count in current["counts"].items()},
        skipped={drift_name(name): reason for name, reason in drift.get("not_compared", {}).items()},
        figures=[embedded(figure) for figure in figures(drift, current, before)],
        number=number,
        percent=percent,
    )


def figures(
    drift: Mapping[str, Any], current: Mapping[str, Any], reference: Mapping[str, Any] | None = None
) -> list[Figure]:
    """Return a histogram of each distribution, the champion's beside today's, the strongest drift first."""
    rows, old = drift.get("distributions", {}), (reference or {}).get("distributions", {})
    made = []
    for name, values in current["distributions"].items():
        groups = [("champion", old[name], NEUTRAL)] if name in old else []
        traces = [
            {
                "type": "histogram", "histnorm": "percent", "bingroup": 1, "nbinsx": 40, "opacity": 0.6, "x": group,
                "name": f"{side} ({len(group):,})", "marker": {"color": colour},
            }
            for side, group, colour in [*groups, ("now", values, TRAINED_COLOURS[0])]
        ]  # fmt: skip
        title = drift_name(name)
        layout = plot_layout(320, html.escape(title), "share (%)") | {"barmode": "overlay"}
        note = f"Drift: {rows[name]['verdict']}." if name in rows else "Not compared."
        figure = Figure(f"drift-{name}", title[0].upper() + title[1:], note, {"data": traces, "layout": layout})
        made.append((_ORDER.index(rows.get(name, {}).get("verdict", "none")), figure))
    return [figure for _, figure in sorted(made, key=lambda pair: pair[0])]


def drift_name(name: str, kind: str = "") -> str:
    """Return how a row of a comparison is written.

    Examples
    --------
    >>> drift_name("positive_dense"), drift_name("train_queries"), drift_name("taken out: barred")
    ('cosine similarity of positives', 'train queries', 'candidates taken out: barred')
    """
    part, _, score = name.partition("_")
    if part in _KINDS and score in SCORES:
        return f"{SCORES[score]} {_KINDS[part]}"
    if name.startswith("taken out: "):
        return f"candidates {name}"
    return f"new terms in {name}" if kind == "new_terms" else _NAMES.get(name, name)


def verdict_sentence(drift: Mapping[str, Any]) -> str:
    """Return the verdict in one sentence.

    Examples
    --------
    >>> verdict_sentence({"compared": False, "reason": "there is no champion to compare with"})
    'Drift was not measured: there is no champion to compare with.'
    """
    return _VERDICTS[drift["verdict"]] if drift["compared"] else f"Drift was not measured: {drift['reason']}."


def findings(drift: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return verdict and sentence of everything that is not ``none``, the strong ones first."""
    found = [(row["verdict"], text) for row, text in _sentences(drift) if row["verdict"] != "none"]
    return sorted(found, key=lambda entry: _ORDER.index(entry[0]))


def summary(drift: Mapping[str, Any]) -> list[str]:
    """Return the lines that a run logs."""
    return [verdict_sentence(drift), *(f"{verdict}: {text}" for verdict, text in findings(drift)), *differences(drift)]


def differences(drift: Mapping[str, Any]) -> list[str]:
    """Say what scores depend on besides the data, where it has changed."""
    return [
        f"{name} was {value['reference']} and is {value['current']}: what scores show may come of that."
        for name, value in drift.get("different", {}).items()
    ]


def _by_verdict(entry: tuple[str, Mapping[str, Any]]) -> int:
    return _ORDER.index(entry[1]["verdict"])


def _sentences(drift: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    for name, row in drift.get("counts", {}).items():
        yield row, f"{drift_name(name)}: {row['reference']:,} before, {row['current']:,} now."
    for name, row in drift.get("new_terms", {}).items():
        known = f"did not occur in the champion's data; {percent(row['reference'])} would be usual."
        yield row, f"{percent(row['current'])} of the terms in {name} {known}"
    for name, row in drift.get("distributions", {}).items():
        means = f"{number(row['mean_reference'])} on average before, {number(row['mean_current'])} now"
        yield row, f"{drift_name(name)}: {means} ({row['shift']:+.2f} standard deviations)."
    for name, row in drift.get("shares", {}).items():
        yield row, f"{drift_name(name)}: {percent(row['reference'])} before, {percent(row['current'])} now."


def percent(share: float) -> str:
    """Return a share for readers.

    Examples
    --------
    >>> [percent(share).replace(chr(160), " ") for share in (0.1234, 0.00012, 1e-6, 0.0)]
    ['12.3 %', '0.01 %', '< 0.01 %', '0.0 %']
    """
    if 0 < share < 1e-4:
        return "<\u00a00.01\u00a0%"
    return f"{100 * share:.1f}\u00a0%" if share >= 0.001 or not share else f"{100 * share:.2f}\u00a0%"


def number(value: float) -> str:
    """Return a mean for readers: three digits, or all before the point.

    Examples
    --------
    >>> number(1234.5), number(5.127), number(0.02179)
    ('1,234', '5.13', '0.0218')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
