"""The section of the report about the hardness of queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from anmi.report.figures import SYMBOLS, Figure, colours, error_bars, plot_layout, scatter
from anmi.report.inputs import metric_name, system_name


def hardness_figure(rows: Sequence[Mapping[str, Any]], metric: str) -> Figure | None:
    """Draw a metric against the hardness of queries, one line with its intervals per system.

    Rows have ``system, hardness, value, low, high, queries``; low and high may be None.
    """
    if not rows:
        return None
    names = list(dict.fromkeys(str(row["system"]) for row in rows))
    palette = colours(names)
    traces = []
    for place, system in enumerate(names):
        mine = [row for row in rows if row["system"] == system]
        traces.append(
            scatter(
                system_name(system),
                [row["hardness"] for row in mine],
                [row["value"] for row in mine],
                "lines+markers",
                error_y=error_bars(mine),
                text=[f"{row['queries']:,} queries" for row in mine],
                marker={"color": palette[system], "size": 8, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                line={"color": palette[system], "width": 2},
                hovertemplate="hardness %{x:.2f}: %{y:.3f}, %{text}",
            )
        )
    layout = plot_layout(420, "hardness of the query (0 to 1)", f"mean {metric_name(metric)}")
    note = "Each dot is a group of about equally many queries, bars are 95 % intervals. Further right is harder."
    return Figure("hardness", "Retrieval quality by the hardness of queries", note, {"data": traces, "layout": layout})


def hardness_rows(hardness: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rows of the table of buckets, as texts; none where all queries are of one, which the results tell."""
    if len({row["bucket"] for row in hardness.get("buckets", ())}) <= 2:
        return []
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


def _rank(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.1f}".removesuffix(".0")
