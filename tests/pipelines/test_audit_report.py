"""The tables of an audit."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from anmi.report.console import audited, judges_table, recipes_table

HOSTILE = "</script><img src=https://example.org/x.png onerror=alert(1)>"


def recipe(name: str, threshold: float, leak: float, **more: Any) -> dict[str, Any]:
    return {
        "collection": "mine", "recipe": name, "setting": "" if math.isnan(threshold) else "max_ratio.max_ratio",
        "threshold": threshold, "false_negative_rate": leak, "false_negative_rate_low": leak / 2,
        "false_negative_rate_high": leak * 2,
        "false_negatives": 3, "gap": 0.1 - leak, "coverage": 0.875, "queries_lost": 21, "lost": ["q1", HOSTILE],
        "negatives": 1234, "failed": "", **more,
    }  # fmt: skip


@pytest.fixture
def recipes() -> pd.DataFrame:
    nothing = {
        "false_negative_rate": math.nan, "false_negative_rate_low": 0.0, "false_negative_rate_high": 1.0,
        "gap": math.nan, "negatives": 0,
    }  # fmt: skip
    return pd.DataFrame([
        recipe("swept", 0.95, 0.04), recipe("plain", math.nan, 0.0125),
        recipe("broken", math.nan, 0.0, failed="reads [bold]elo, which nobody measured") | nothing,
    ])  # fmt: skip


@pytest.fixture
def judges() -> pd.DataFrame:
    rows = [("likeness", 0.975, 0.96, 0.98), ("worse", 0.45, 0.4, 0.5), ("silent", math.nan, math.nan, math.nan)]
    table = pd.DataFrame(rows, columns=["judge", "auc", "auc_low", "auc_high"])
    return table.assign(collection="mine", planted=[40, 40, 0], others=[900, 900, 0], missing=[0, 0, 940])


@pytest.fixture
def summary() -> dict[str, Any]:
    found = {"queries": 1356, "planted": {"hidden": 4, "equivalent": 583}, "found": 0.954}
    return {
        "collection": HOSTILE, "encoder": "minilm", "date": "2026-01-02T03:04:05+00:00", "depth": 50, "audit": found,
        "lost": {"swept": ["q1", HOSTILE]}, "failed": {"broken": "reads elo"},
    }  # fmt: skip


def printed(table: Any) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=140, color_system=None).print(table)
    return file.getvalue().splitlines()


def test_tables_show_each_recipe_as_it_is(recipes: pd.DataFrame, judges: pd.DataFrame, summary: dict[str, Any]) -> None:
    lines = printed(recipes_table(recipes, summary | {"collection": "[red]mine"}))
    assert "Audit of [red]mine: 1,356 queries, planted 4 hidden, 583 equivalent" in lines[0]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[0] for row in cells] == ["plain", "swept", "broken"], "the smallest leak first"
    expected = ["swept", "max_ratio.max_ratio = 0.95", "4.00%", "2.00% to 8.00%", "0.060", "87.5%", "21", "1,234"]
    assert cells[1] == expected
    assert "cannot be run here" in cells[2]
    assert [cells[0] for cells in audited(recipes)] == ["plain", "swept", "broken"]
    shown = "\n".join(printed(judges_table(judges)))
    assert re.search(r"likeness │ 0\.975 │ 0\.960 to 0\.980 │ +40 │ +900 │ +0 │", shown)
