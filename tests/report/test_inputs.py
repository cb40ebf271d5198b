from dataclasses import asdict

import numpy as np

from anmi.judging.calibration import cross_fitted, reliability
from anmi.report.inputs import judge_entries, signed
from anmi.report.sentences import false_negatives_sentence


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
        assert judge_entries(teacher) == {"cross_encoder": expected}
        fused = {"auc": 0.9, "reliability": curve, "method": "platt"}
        found = judge_entries(teacher, {"judges": {"fused": fused}, "other": 1})
        assert found == {"cross_encoder": expected, "fused": fused}


def test_a_run_that_judged_nothing_has_no_judges():
    assert judge_entries({"judged_pairs": 0}) == {}
    assert judge_entries({}, {"judges": {}}) == {}
    assert judge_entries({}, {"judges": None}) == {}
