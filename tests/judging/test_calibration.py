"""From scores to probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from anmi.errors import AnmiError
from anmi.judging.calibration import Platt, fit_platt, reliability


def judged(seed: int, slope: float, offset: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.normal(offset, scale, 3000)
    labels = rng.random(3000) < expit(slope * (scores - offset) / scale - 1)
    return scores, labels.astype(int)


@pytest.mark.parametrize(("slope", "offset", "scale"), [(1.5, 0, 1), (3.0, 0.8, 0.05), (2.0, -40, 12)])
@pytest.mark.parametrize("weighted", [False, True])
def test_platt_is_the_plain_maximum_of_the_likelihood(
    slope: float, offset: float, scale: float, weighted: bool
) -> None:
    scores, labels = judged(0, slope, offset, scale)
    weights = np.random.default_rng(1).uniform(0.2, 2, len(scores)) if weighted else None
    mass = np.ones(len(scores)) if weights is None else weights

    def loss(parameters: np.ndarray) -> float:
        z = parameters[0] * (scores - offset) / scale + parameters[1]
        return -float((mass * np.where(labels == 1, log_expit(z), log_expit(-z))).sum())

    best = minimize(loss, np.zeros(2), method="BFGS").x
    grid = np.linspace(offset - 3 * scale, offset + 3 * scale, 50)
    expected = expit(best[0] * (grid - offset) / scale + best[1])
    fitted = fit_platt(scores, labels, weights)
    np.testing.assert_allclose(fitted(grid), expected, atol=2e-3)
    assert (np.diff(fitted(grid)) > 0).all()
    assert fitted.as_dict() == {"slope": fitted.slope, "intercept": fitted.intercept}


def test_calibrated_probabilities_keep_the_share_of_relevant_ones() -> None:
    scores, labels = judged(3, 2.0, 5.0, 3.0)
    assert fit_platt(scores, labels)(scores).mean() == pytest.approx(labels.mean(), abs=2e-3)


def test_scores_that_are_missing_are_left_out_of_the_fit_and_stay_missing() -> None:
    scores, labels = judged(0, 1.5, 0, 1)
    fitted = fit_platt(scores, labels)
    holes = np.concatenate([scores, [np.nan, np.nan]])
    again = fit_platt(holes, np.concatenate([labels, [1, 0]]), np.ones(len(holes)))
    assert again.slope == pytest.approx(fitted.slope, rel=1e-4)
    assert np.isnan(fitted(np.array([np.nan, 0.0]))).tolist() == [True, False]


def test_a_perfect_judge_still_gets_finite_coefficients() -> None:
    fitted = fit_platt(np.array([0.0, 0.1, 0.9, 1.0]), np.array([0, 0, 1, 1]))
    assert np.isfinite([fitted.slope, fitted.intercept]).all() and fitted(np.array([0.95]))[0] > 0.9


def test_a_judge_that_says_the_same_of_everything_gives_the_share() -> None:
    assert fit_platt(np.zeros(4), np.array([0, 0, 0, 1]))(np.zeros(1))[0] == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("label", [0, 1])
def test_one_kind_of_label_is_an_error(label: int) -> None:
    with pytest.raises(AnmiError, match="only one kind"):
        fit_platt(np.array([0.1, 0.5, np.nan]), np.array([label, label, 1 - label]))


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.05, 0.15, 0.12, 1.0]), np.array([0, 1, 0, 1]), bins=10)
    assert [row["count"] for row in found["bins"]] == [1, 2, 1]
    assert [row["predicted"] for row in found["bins"]] == pytest.approx([0.05, 0.135, 1.0])
    assert [row["observed"] for row in found["bins"]] == pytest.approx([0.0, 0.5, 1.0])
    assert found["expected_calibration_error"] == pytest.approx((0.05 + 2 * 0.365 + 0.0) / 4)


def test_reliability_weighs_the_examples() -> None:
    found = reliability(np.array([0.5, 0.5]), np.array([1, 0]), bins=2, weights=np.array([3.0, 1.0]))
    assert found["bins"][0]["observed"] == pytest.approx(0.75)
    assert found["expected_calibration_error"] == pytest.approx(0.25)


def test_a_rising_function_keeps_the_order() -> None:
    assert (np.diff(Platt(2.0, -1.0)(np.linspace(-5, 5, 20))) > 0).all()
