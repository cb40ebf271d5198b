"""The section of the report about the hardness of queries."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from anmi.report.figures import SYMBOLS, Figure, colours
from anmi.report.inputs import metric_name, system_name


def hardness_figure(rows: Sequence[Mapping[str, Any]], metric: str) -> Figure | None:
    """Draw a metric against the hardness of queries, one line with its intervals per system.

    Parameters
    ----------
    rows
        ``system, hardness, value, low, high, queries``; low and high may be None.
    metric
        As in ``ndcg@10``.
    """
    if not rows:
        return None
    names = list(dict.fromkeys(str(row["system"]) for row in rows))
    palette = colours(names)
    traces = []
    for place, system in enumerate(names):
        mine = [row for row in rows if row["system"] == system]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": html.escape(system_name(system)),
                "x": [row["hardness"] for row in mine],
                "y": [row["value"] for row in mine],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [_length(row["value"], row["high"]) for row in mine],
                    "arrayminus": [_length(row["low"], row["value"]) for row in mine],
                    "thickness": 1.5,
                    "width": 4,
                },
                "text": [f"{row['queries']:,} queries" for row in mine],
                "marker": {"color": palette[system], "size": 8, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                "line": {"color": palette[system], "width": 2},
                "hovertemplate": "hardness %{x:.2f}: %{y:.3f}, %{text}",
            }
        )
    layout = {
        "height": 420,
        "margin": {"l": 8, "r": 16, "t": 16, "b": 8},
        "xaxis": {"title": {"text": "hardness of the query (0 to 1)"}, "automargin": True},
        "yaxis": {"title": {"text": f"mean {metric_name(metric)}"}, "automargin": True},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "hovermode": "closest",
    }
    note = "Each dot is a group of about equally many queries, bars are 95 % intervals. Further right is harder."
    return Figure("hardness", "Retrieval quality by the hardness of queries", note, {"data": traces, "layout": layout})


def hardness_rows(hardness: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rows of the table of buckets, as texts."""
    return [
        {
            "system": system_name(str(row["system"])),
            "bucket": str(row["bucket"]),
            "queries": f"{row['queries']:,.0f}",
            "value": f"{row[hardness['metric']]:.3f}",
            "ranks": " / ".join(_rank(row.get(f"rank_{name}")) for name in ("mean", "median", "min", "max")),
            "not_found": f"{row['rank_not_found']:,.0f}",
        }
        for row in hardness.get("buckets", ())
    ]


def _length(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else max(high - low, 0.0)


def _rank(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.1f}".removesuffix(".0")
