import math
from dataclasses import asdict

import numpy as np
import pandas as pd

from anmi.judging.calibration import cross_fitted, reliability
from anmi.report.false_negatives import false_negatives_sentence
from anmi.report.html import render
from anmi.report.inputs import ReportInputs, example_table, judge_entries, signed


def rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "query_id": ["a", "b", "b", "c"],
            "query": ["qa", "qb", "qb", "qc"],
            "positive_id": ["p1", "p2", "p3", "p4"],
            "positive": ["t1", "t2", "t3", "t4"],
            "negative_ids": [[], ["n1", "n2"], ["n1"], np.array(["n3"])],
            "negatives": [[], ["x1", "x2"], ["x1"], np.array(["x3"])],
            "weights": [[], [1.0, 0.5], [1.0], [0.2]],
            "positive_dense": [0.9, 0.8, 0.7, 0.6],
            "negative_dense": [[], [0.3, 0.2], [0.3], [0.1]],
        }
    )


def test_examples_take_one_row_per_query_that_has_negatives():
    found = example_table(rows())
    assert found["document_id"].tolist() == ["p2", "n1", "n2", "p4", "n3"]
    assert found["dense"].tolist() == [0.8, 0.3, 0.2, 0.6, 0.1]
    assert found["weight"].tolist()[1:3] == [1.0, 0.5]
    assert math.isnan(found["weight"][0])
    assert example_table(rows(), count=1)["document_id"].tolist() == ["p2", "n1", "n2"]


def test_examples_of_rows_without_negatives_are_empty_and_render():
    found = example_table(rows().head(1))
    assert found.empty
    assert "There are no examples" in render(ReportInputs(results=pd.DataFrame(), summary={}, examples=found))


def test_the_leak_is_not_played_down_when_no_truth_is_known():
    leak = {
        "count": 0,
        "total": 10,
        "share": 0.0,
        "low": 0.0,
        "high": 0.28,
        "queries": 0,
        "queries_total": 2,
        "known": 0,
    }
    assert "more may be hidden" in false_negatives_sentence(leak)
    assert false_negatives_sentence({}) == ""


def test_differences_carry_their_sign():
    assert [signed(v) for v in (0.02, -0.02, 0.0, -0.0004)] == ["+0.020", "−0.020", "0.000", "0.000"]


def test_judges_are_read_from_what_the_stages_write():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=600)
    labels = (scores + rng.normal(size=600) > 0).astype(int)
    folds = np.arange(600) % 3
    for method, name in (("platt", "Platt scaling"), ("isotonic", "isotonic regression")):
        probabilities, calibrators = cross_fitted(scores, labels, folds, method)
        curve = reliability(probabilities, labels)
        teacher = {
            "auc_positive_against_candidates": 0.8,
            "calibration": [asdict(each) for each in calibrators.values()],
            "reliability": curve,
        }
        expected = {"auc": 0.8, "reliability": curve, "method": f"{name}, cross-fitted over 3 folds"}
        assert judge_entries(teacher) == {"teacher": expected}
        fused = {"auc": 0.9, "reliability": curve, "method": "platt"}
        found = judge_entries(teacher, {"judges": {"fused": fused}, "other": 1})
        assert found == {"teacher": expected, "fused": fused}


def test_a_run_that_judged_nothing_has_no_judges():
    assert judge_entries({"judged_pairs": 0}) == {}
    assert judge_entries({}, {"judges": {}}) == {}
    assert judge_entries({}, {"judges": None}) == {}
