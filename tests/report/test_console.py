"""The report on the console and its inputs."""

import io
from dataclasses import asdict

import numpy as np
import pandas as pd
from rich.console import Console

from anmi.judging.calibration import cross_fitted, reliability
from anmi.report.console import rejections_table, results_table
from anmi.report.sentences import false_negatives_lines, judge_entries


def printed(table, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def test_results_fit_a_terminal_and_say_the_difference(make):
    inputs = make()
    lines = printed(results_table(inputs.results, inputs.comparisons)).splitlines()
    rows = {line.split("│")[1].strip(): [c.strip() for c in line.split("│")[2:-1]] for line in lines if "│" in line}
    assert list(rows) == ["BM25", "zero-shot", "anmi_2_1"]
    assert rows["anmi_2_1"] == ["0.664", "0.628", "0.887", "0.975", "+0.062 [+0.047, +0.078]"]
    assert rows["zero-shot"][-1] == "–"
    assert "[95 % interval]" in printed(results_table(inputs.results, inputs.comparisons))


def test_rejections_name_each_step(make):
    shown = printed(rejections_table(make().funnel))
    assert "rejected: max_ratio" in shown
    assert "14,310" in shown
    assert "14.5%" in shown
    assert "promoted: promote" in shown
    assert printed(rejections_table(pd.DataFrame(make().funnel))) == shown
    rule = "dense ≥ 0.95 of the positive's"
    assert rule in printed(rejections_table(make().funnel), 120)
    plain = [{name: value for name, value in row.items() if name != "rule"} for row in make().funnel]
    assert "rule" not in printed(rejections_table(plain))


def test_the_leak_is_not_played_down_when_no_truth_is_known():
    leak = {
        "count": 0, "total": 10, "share": 0.0, "low": 0.0, "high": 0.28, "queries": 0, "queries_total": 2, "known": 0,
    }  # fmt: skip
    assert "more may hide" in false_negatives_lines(leak)[1]
    assert false_negatives_lines({}) == []


def test_judges_are_read_from_what_the_stages_write():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=600)
    labels = (scores + rng.normal(size=600) > 0).astype(int)
    folds = np.arange(600) % 3
    probabilities, calibrators = cross_fitted(scores, labels, folds)
    curve = reliability(probabilities, labels)
    teacher = {
        "auc_positive_against_candidates": 0.8,
        "calibration": [asdict(each) for each in calibrators.values()],
        "reliability": curve,
    }
    expected = {"auc": 0.8, "reliability": curve, "method": "Platt scaling, cross-fitted over 3 folds"}
    assert judge_entries(teacher) == {"cross_encoder": expected}
    fused = {"auc": 0.9, "reliability": curve, "method": "hidden"}
    found = judge_entries(teacher, {"judges": {"fused": fused}, "other": 1})
    assert found == {"cross_encoder": expected, "fused": fused}
