"""The tables that an audit prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from rich.markup import escape
from rich.table import Table

HEADER: Final = (
    "recipe", "main threshold", "false negatives", "95 % interval", "gap", "coverage", "queries lost", "negatives",
)  # fmt: skip


def rows(recipes: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the cells of every recipe as it is, the cleanest first."""
    found = recipes[recipes["default"]].sort_values("false_negative_rate", kind="stable").to_dict("records")
    failed = ("cannot be run here", *[""] * 5)
    return [(row["recipe"], setting(row), *(failed if row["failed"] else measured(row).values())) for row in found]


def recipes_table(recipes: pd.DataFrame, summary: Mapping[str, Any]) -> Table:
    """Return every recipe as it is: false negatives, gap and coverage, the cleanest first.

    Rows are those of :func:`anmi.evaluation.audit.audit_recipes`; the summary has the ``collection`` and, under
    ``audit``, the numbers of ``queries`` and, by kind, of ``planted`` documents.
    """
    found = summary["audit"]
    planted = ", ".join(f"{count:,} {kind}" for kind, count in found["planted"].items())
    title = f"Audit of {summary['collection']}: {found['queries']:,} queries, planted {planted}"
    table = Table(title=escape(title), title_justify="left")
    for name in HEADER:
        table.add_column(name, no_wrap=name == "recipe", justify="left" if name in HEADER[:2] else "right")
    for cells in rows(recipes):
        table.add_row(*map(escape, cells))
    return table


def setting(row: Mapping[Any, Any]) -> str:
    """Return the main threshold of a recipe with its value."""
    if not row["setting"]:
        return "none"
    return row["setting"] if math.isnan(row["threshold"]) else f"{row['setting']} = {row['threshold']:g}"


def measured(row: Mapping[Any, Any]) -> dict[str, str]:
    """Return what an audit measured of one recipe, as text."""
    known = not math.isnan(row["false_negative_rate"])
    return {
        "false_negative_rate": f"{row['false_negative_rate']:.2%}" if known else "–",
        "interval": f"{row['false_negative_rate_low']:.2%} to {row['false_negative_rate_high']:.2%}" if known else "–",
        "gap": f"{row['gap']:.3f}" if known else "–",
        "coverage": f"{row['coverage']:.1%}",
        "queries lost": f"{row['queries_lost']:,}",
        "negatives": f"{row['negatives']:,}",
    }


def judges_table(judges: pd.DataFrame) -> Table:
    """Return every judgment with its AUC, the best first, from :func:`anmi.evaluation.audit.audit_judges`."""
    table = Table(title="Judges: AUC on planted against other candidates", title_justify="left")
    table.add_column("judge", no_wrap=True)
    for name in ("AUC", "95 % interval", "planted", "others", "not judged"):
        table.add_column(name, justify="right")
    for row in judges.to_dict("records"):
        known = not math.isnan(row["auc"])
        cells = (f"{row['auc']:.3f}", f"{row['auc_low']:.3f} to {row['auc_high']:.3f}") if known else ("–", "–")
        table.add_row(escape(row["judge"]), *cells, *(f"{row[name]:,}" for name in ("planted", "others", "missing")))
    return table


def recipe_lines(recipes: pd.DataFrame) -> list[str]:
    """Return one short line per recipe as it is, for a log, the cleanest first."""
    own = recipes[recipes["default"] & (recipes["failed"] == "")].sort_values("false_negative_rate", kind="stable")
    width = max(map(len, own["recipe"]), default=0)
    rows = [{"name": row["recipe"]} | measured(row) for row in own.to_dict("records")]
    return [
        f"{row['name']:<{width}}  false negatives {row['false_negative_rate']:>6}  gap {row['gap']:>6}  "
        f"coverage {row['coverage']:>6}"
        for row in rows
    ]
