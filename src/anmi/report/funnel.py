"""The figure of the funnel: what each step took out of the candidates."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anmi.report.figures import KEPT, NEUTRAL, POSITIVE, REJECTED, Figure, plot_layout
from anmi.report.inputs import is_step

_TAKEN: Final = "rejected"
_NOT_DRAWN: Final = "not drawn"
# Colour and pattern of the bars of the funnel, by where candidates went.
_WAYS: Final = {
    "all": ("#6B7A90", ""), _TAKEN: (REJECTED, "/"), "uncertain": (NEUTRAL, "."), "promoted": (POSITIVE, "x"),
    _NOT_DRAWN: ("#B08FA6", "-"), "negatives": (KEPT, ""),
}  # fmt: skip


def funnel(rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Bars on a logarithmic scale: what each step took out of all candidates, and what was drawn in the end."""
    total = next((row["candidates"] for row in rows if row["kind"] == "total"), 0)
    if not total:
        return None
    steps = [row for row in rows if is_step(row) or row["kind"] == "undecided"]
    idle = [str(row["step"]) for row in steps if not row["candidates"]]
    drawn = sum(row["candidates"] for row in rows if row["kind"] == "negative")
    bars = [("all candidates", total, "all")]
    bars += [(str(row["step"]), row["candidates"], _way(row)) for row in steps if row["candidates"]]
    bars += [("→ negatives", drawn, "negatives")] if drawn else []
    labels = [html.escape(label) for label, _, _ in bars]
    traces = []
    for way, (colour, shape) in _WAYS.items():
        mine = [(label, count) for label, (_, count, kind) in zip(labels, bars, strict=True) if kind == way]
        if mine:
            counts = [count for _, count in mine]
            texts = [f"{count:,} ({_per_mille(count, total)})" for count in counts]
            traces.append({
                "type": "bar", "orientation": "h", "name": way, "y": [label for label, _ in mine], "x": counts,
                "text": texts, "textposition": "outside", "cliponaxis": False,
                "marker": {"color": colour, "pattern": {"shape": shape}}, "hovertemplate": "%{y}: %{text}",
            })  # fmt: skip
    layout = plot_layout(120 + 36 * len(bars), "candidates (logarithmic)", "")
    layout |= {"barmode": "overlay"}
    layout["xaxis"] |= {"type": "log", "range": [-0.1, math.log10(total) + 1], "dtick": 1}
    layout["yaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": labels[::-1]}
    note = "Top to bottom in the order of the steps, in brackets per mille of all candidates."
    if idle:
        note += f" Nothing was taken by {', '.join(idle)}."
    return Figure("funnel", "What each step took out of the candidates", note, {"data": traces, "layout": layout})


def _per_mille(count: int, total: int) -> str:
    share = 1000 * count / total
    return f"{share:.0f} ‰" if share >= 10 else f"{share:.2g} ‰"


def _way(row: Mapping[str, Any]) -> str:
    return _NOT_DRAWN if row["kind"] == "undecided" else row["kind"] if row["kind"] in _WAYS else _TAKEN
