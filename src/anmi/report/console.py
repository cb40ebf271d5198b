"""The tables that a run prints when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
from rich.markup import escape
from rich.table import Table

from anmi.report.inputs import (
    HEADLINE_METRICS,
    ZERO_SHOT,
    between,
    difference,
    lookup,
    metric_name,
    signed,
    step_name,
    system_name,
    systems,
)


def results_table(results: pd.DataFrame, comparisons: pd.DataFrame) -> Table:
    """Return the systems as rows, the headline metrics as columns.

    The last column shows nDCG@10 against ``zero_shot``; comparisons may be empty.
    """
    table = Table(title="Results on the test queries", title_justify="left")
    table.add_column("system")
    for metric in HEADLINE_METRICS:
        table.add_column(metric_name(metric).replace("@", "\n@"), justify="right")
    table.add_column(escape("Δ nDCG@10 vs zero-shot\n[95 % interval]"), justify="right", no_wrap=True)
    for system in systems(results):
        found = [lookup(results, system, metric) for metric in HEADLINE_METRICS]
        values = [f"{entry['value']:.3f}" if entry else "–" for entry in found]
        change = None if system == ZERO_SHOT else difference(comparisons, system)
        delta = "–"
        if change:
            bounds = f"[{between(change['low'], change['high'], signed, ', ')}]"
            delta = escape(f"{signed(change['difference'])} {bounds}")
        table.add_row(escape(system_name(system)), *values, delta)
    return table


NOTHING_MINED: Final = (
    "No negatives were mined, since the collection has no training labels; training rests on pseudo-queries."
)


def rejections_table(funnel: Sequence[Mapping[str, Any]] | pd.DataFrame) -> Table:
    """Return what became of the candidates, step by step: a funnel, or the same rows as a table."""
    table = Table(title="From candidates to negatives", title_justify="left")
    table.add_column("step")
    table.add_column("candidates", justify="right")
    table.add_column("share", justify="right")
    table.add_column("queries", justify="right")
    rows: Sequence[Mapping[Any, Any]] = funnel.to_dict("records") if isinstance(funnel, pd.DataFrame) else funnel
    # In a table what is missing is NaN.
    rules = [rule if isinstance(rule := row.get("rule"), str) else "" for row in rows]
    if any(rules):
        table.add_column("rule")
    total = max((row["candidates"] for row in rows if row["kind"] == "total"), default=0)
    for row, rule in zip(rows, rules, strict=True):
        share = f"{row['candidates'] / total:.1%}" if total else "–"
        cells = [step_name(row), f"{row['candidates']:,}", share, f"{row['queries']:,}"]
        table.add_row(*map(escape, [*cells, rule] if any(rules) else cells))
    return table
