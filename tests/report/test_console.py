"""The report on the console and its inputs."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
from tests.report.conftest import SEARCH, comparisons, funnel, printed, results

from anmi.report.console import (
    audited,
    judges_table,
    parts_table,
    recipes_table,
    rejections_table,
    results_table,
)
from anmi.report.sentences import false_negatives_lines, judge_entries


def test_results_say_the_difference_from_bm25_and_from_the_start():
    lines = printed(results_table(results(), comparisons()), 120).splitlines()
    rows = {
        line.split("│")[1].strip(): [c.strip() for c in line.split("│")[2:-1]]
        for line in lines
        if "│" in line
    }
    assert list(rows) == ["anmi_2_1", "zero-shot", "BM25"]
    changes = ["+0.123 [+0.108, +0.139]", "+0.062 [+0.047, +0.078]"]
    assert rows["anmi_2_1"] == ["0.664", "0.628", "0.887", "0.975", *changes]
    assert rows["zero-shot"][-1] == "–"
    assert "[95 % interval]" in "\n".join(lines)


def test_each_part_of_the_search_has_what_it_weighs_brings_and_costs():
    lines = printed(parts_table(SEARCH), 120).splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert rows == [
        ["network, untrained", "0.75", "0.612", "0.541", "35.0", "–"],
        ["BM25", "0.25", "0.500", "0.612", "0.5", "1.2"],
    ]
    assert parts_table(None) is None and parts_table({"weights": {}}) is None


def test_rejections_name_each_step():
    shown = printed(rejections_table(funnel()))
    for text in ("rejected: max_ratio", "14,310", "14.5\u00a0%", "promoted: promote"):
        assert text in shown
    assert "dense ≥ 0.95 of the positive's" in printed(rejections_table(funnel()), 120)


def test_the_leak_is_not_played_down_when_no_truth_is_known():
    leak = {"count": 0, "total": 10, "share": 0.0, "low": 0.0, "high": 0.28}
    leak |= {"queries": 0, "queries_total": 2, "known": 0}
    assert "more may hide" in false_negatives_lines(leak)[1]
    assert false_negatives_lines({}) == []


def test_judges_are_read_from_what_the_stages_write():
    curve = {"bins": [], "expected_calibration_error": 0.1}
    teacher = {"auc_positive_against_candidates": 0.8, "calibration": [{}] * 3}
    teacher["reliability"] = curve
    method = "label shift, cross-fitted over 3 folds"
    expected = {"auc": 0.8, "reliability": curve, "method": method}
    assert judge_entries(teacher) == {"cross_encoder": expected} and judge_entries({}) == {}
    fused = {"auc": 0.9, "reliability": curve, "method": "hidden"}
    found = judge_entries(teacher, {"judges": {"fused": fused}, "other": 1})
    assert found == {"cross_encoder": expected, "fused": fused}


def recipe(name: str, threshold: float, leak: float, **more: Any) -> dict[str, Any]:
    return {
        "collection": "mine",
        "recipe": name,
        "setting": "" if math.isnan(threshold) else "max_ratio.max_ratio",
        "threshold": threshold,
        "false_negative_rate": leak,
        "false_negative_rate_low": leak / 2,
        "false_negative_rate_high": leak * 2,
        "false_negatives": 3,
        "gap": 0.1 - leak,
        "coverage": 0.875,
        "queries_lost": 21,
        "negatives": 1234,
        "failed": "",
        **more,
    }


def test_tables_show_each_recipe_and_judge_as_it_is() -> None:
    recipes = pd.DataFrame(
        [
            recipe("swept", 0.95, 0.04),
            recipe("plain", math.nan, 0.0125),
            recipe("broken", math.nan, math.nan, failed="reads [bold]elo, which nobody measured"),
        ]
    )
    audit = {"queries": 1356, "planted": {"hidden": 4, "equivalent": 583}, "found": 0.954}
    lines = printed(
        recipes_table(recipes, {"collection": "[red]mine", "audit": audit}), 140
    ).splitlines()
    assert "Audit of [red]mine: 1,356 queries, planted 4 hidden, 583 equivalent" in lines[0]
    cells = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in lines
        if line.startswith("│")
    ]
    assert [row[0] for row in cells] == ["plain", "swept", "broken"], "the smallest leak first"
    expected = [
        "swept",
        "max_ratio.max_ratio = 0.95",
        "4.00%",
        "2.00% to 8.00%",
        "0.060",
        "87.5%",
        "21",
        "1,234",
    ]
    assert cells[1] == expected
    assert "cannot be run here" in cells[2]
    assert [cells[0] for cells in audited(recipes)] == ["plain", "swept", "broken"]
    rows = [
        ("likeness", 0.975, 0.96, 0.98, 40, 900, 0),
        ("silent", math.nan, math.nan, math.nan, 0, 0, 940),
    ]
    judges = pd.DataFrame(
        rows, columns=["judge", "auc", "auc_low", "auc_high", "planted", "others", "missing"]
    )
    shown = printed(judges_table(judges), 140)
    assert re.search(r"likeness │ 0\.975 │ 0\.960 to 0\.980 │ +40 │ +900 │ +0 │", shown)
