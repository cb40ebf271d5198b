"""The page of an ablation: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anmi.report.ablation import bucket_table, cells, legend, mean_table, note, sentences, tables
from anmi.report.figures import JUDGE, NEUTRAL, POSITIVE, REJECTED, Figure, error_bars, plot_layout, scatter
from anmi.report.page import embedded, page

_TEMPLATE: Final = "ablation.html.jinja"
_COLOURS: Final = {"▲": POSITIVE, "▼": REJECTED, "·": NEUTRAL, "": JUDGE}
_SYMBOLS: Final = {"▲": "triangle-up", "▼": "triangle-down", "·": "circle", "": "diamond"}
_NAMES: Final = {
    "▲": "better than the baseline", "▼": "worse than the baseline", "·": "no significant difference",
    "": "the baseline, or not tested",
}  # fmt: skip


def render(results: Mapping[str, Any]) -> str:
    """Return an ablation, as the node ``compare_recipes`` returns it, as one self-contained HTML document."""
    sections = []
    for place, (collection, judgments, found) in enumerate(tables(results)):
        texts = [cells(row, results) for row in found]
        header, rows = bucket_table(found)
        sections.append({
            "title": f"{collection}, {judgments}",
            "note": note(results, collection, judgments),
            "figure": embedded(dots(f"cells-{place}", found, results)),
            "header": list(texts[0]),
            "rows": [list(text.values()) for text in texts],
            "buckets": {"header": header, "rows": rows},
            "unknown": sorted({
                f"{row['recipe']}: {row['false_negative_rate_from']}"
                for row in found if row["false_negative_rate"] is None
            }),
        })  # fmt: skip
    header, rows = mean_table(results)
    return page(
        _TEMPLATE,
        results=results,
        sentences=sentences(results),
        legend=legend(results),
        means={"header": header, "rows": rows},
        sections=sections,
    )


def dots(name: str, rows: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> Figure:
    """Means with intervals, the best recipe on top; colour and shape tell how it stands to the baseline."""
    texts = [cells(row, results) for row in rows]
    column = f"Δ to {results['baseline']}"
    marks = [text[column][-1] if text[column][-1] in _COLOURS else "" for text in texts]
    traces = []
    for sign in _COLOURS:
        mine = [(row, text) for row, text, mark in zip(rows, texts, marks, strict=True) if mark == sign]
        if mine:
            traces.append(
                scatter(
                    _NAMES[sign],
                    [row["ndcg_10"] for row, _ in mine],
                    [html.escape(row["recipe"]) for row, _ in mine],
                    "markers",
                    error_x=error_bars([row for row, _ in mine], "ndcg_10"),
                    marker={"color": _COLOURS[sign], "size": 10, "symbol": _SYMBOLS[sign]},
                    text=["<br>".join(html.escape(f"{k}: {v}") for k, v in text.items()) for _, text in mine],
                    hoverinfo="text",
                )
            )
    layout = plot_layout(140 + 26 * len(rows), "nDCG@10, mean over test queries and seeds", "")
    order = [html.escape(row["recipe"]) for row in rows]
    layout["yaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": order[::-1]}
    note = (
        "Bars are intervals over queries; they overlap even where the paired test finds a difference, since some "
        "queries are hard for all. Further right is better."
    )
    return Figure(name, "Retrieval quality of each recipe", note, {"data": traces, "layout": layout})
