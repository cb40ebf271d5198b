"""The tables of an audit."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pandas as pd
from rich.console import Console

from anmi.report.console import audited, judges_table, recipes_table


def recipe(name: str, threshold: float, leak: float, **more: Any) -> dict[str, Any]:
    return {
        "collection": "mine", "recipe": name, "setting": "" if math.isnan(threshold) else "max_ratio.max_ratio",
        "threshold": threshold, "false_negative_rate": leak, "false_negative_rate_low": leak / 2,
        "false_negative_rate_high": leak * 2, "false_negatives": 3, "gap": 0.1 - leak, "coverage": 0.875,
        "queries_lost": 21, "negatives": 1234, "failed": "", **more,
    }  # fmt: skip


def printed(table: Any) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=140, color_system=None).print(table)
    return file.getvalue().splitlines()


def test_tables_show_each_recipe_and_judge_as_it_is() -> None:
    recipes = pd.DataFrame([
        recipe("swept", 0.95, 0.04), recipe("plain", math.nan, 0.0125),
        recipe("broken", math.nan, math.nan, failed="reads [bold]elo, which nobody measured"),
    ])  # fmt: skip
    audit = {"queries": 1356, "planted": {"hidden": 4, "equivalent": 583}, "found": 0.954}
    lines = printed(recipes_table(recipes, {"collection": "[red]mine", "audit": audit}))
    assert "Audit of [red]mine: 1,356 queries, planted 4 hidden, 583 equivalent" in lines[0]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[0] for row in cells] == ["plain", "swept", "broken"], "the smallest leak first"
    expected = ["swept", "max_ratio.max_ratio = 0.95", "4.00%", "2.00% to 8.00%", "0.060", "87.5%", "21", "1,234"]
    assert cells[1] == expected
    assert "cannot be run here" in cells[2]
    assert [cells[0] for cells in audited(recipes)] == ["plain", "swept", "broken"]
    rows = [("likeness", 0.975, 0.96, 0.98, 40, 900, 0), ("silent", math.nan, math.nan, math.nan, 0, 0, 940)]
    judges = pd.DataFrame(rows, columns=["judge", "auc", "auc_low", "auc_high", "planted", "others", "missing"])
    shown = "\n".join(printed(judges_table(judges)))
    assert re.search(r"likeness │ 0\.975 │ 0\.960 to 0\.980 │ +40 │ +900 │ +0 │", shown)
