"""From scores to probabilities."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import binomtest

from anmi.errors import AnmiError
from anmi.judging.calibration import cross_fitted, fit_platt, reliability, threshold_for


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
    weights = np.random.default_rng(1).uniform(0.2, 2, len(scores)) if weighted else np.ones(len(scores))

    def loss(parameters: np.ndarray) -> float:
        z = parameters[0] * (scores - offset) / scale + parameters[1]
        return -float((weights * np.where(labels == 1, log_expit(z), log_expit(-z))).sum())

    best = minimize(loss, np.zeros(2), method="BFGS").x
    grid = np.linspace(offset - 3 * scale, offset + 3 * scale, 50)
    expected = expit(best[0] * (grid - offset) / scale + best[1])
    # What has no score is left out of the fit and stays missing.
    holes = [np.append(values, [extra] * 2) for values, extra in ((scores, np.nan), (labels, 1), (weights, 1))]
    for fitted in (fit_platt(scores, labels, weights), fit_platt(*holes)):
        np.testing.assert_allclose(fitted(grid), expected, atol=2e-3)
        assert np.isnan(fitted(np.array([np.nan, offset]))).tolist() == [True, False]


def test_a_score_is_calibrated_by_what_was_fitted_on_the_other_parts() -> None:
    scores, labels = judged(5, 2.0, -3, 4)
    folds = np.random.default_rng(6).integers(0, 3, len(scores))
    found, _ = cross_fitted(scores, labels, folds)
    for k in range(3):
        inside = folds == k
        expected = fit_platt(scores[~inside], labels[~inside])(scores[inside])
        np.testing.assert_allclose(found[inside], expected, rtol=1e-6)


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.05, 0.15, 0.12, 1.0]), np.array([0, 1, 0, 1]), bins=10)
    assert [row["count"] for row in found["bins"]] == [1, 2, 1]
    assert [row["predicted"] for row in found["bins"]] == pytest.approx([0.05, 0.135, 1.0])
    assert [row["observed"] for row in found["bins"]] == pytest.approx([0.0, 0.5, 1.0])
    assert found["expected_calibration_error"] == pytest.approx((0.05 + 2 * 0.365 + 0.0) / 4)
    weighed = reliability(np.array([0.5, 0.5]), np.array([1, 0]), bins=2, weights=np.array([3.0, 1.0]))
    assert weighed["bins"][0]["observed"] == pytest.approx(0.75)
    assert weighed["expected_calibration_error"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.1, 0.2, np.nan], [1, 1, 0], "only one kind"),
        ([np.nan, np.nan], [0, 1], "no finite score among 2"),
        ([], [], "no finite score among 0"),
    ],
)
def test_what_cannot_be_calibrated_is_said(scores: list[float], labels: list[int], message: str) -> None:
    with pytest.raises(AnmiError, match=message):
        fit_platt(np.array(scores), np.array(labels))


# Few distinct values, so that there are ties.
ROWS = st.lists(st.tuples(st.integers(0, 12).map(lambda i: i / 12), st.booleans()), min_size=2, max_size=60).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@given(rows=ROWS, target=st.fractions(0, Fraction(39, 40), max_denominator=40))
def test_the_threshold_is_the_highest_that_meets_the_target(rows: list[tuple[float, bool]], target: Fraction) -> None:
    probability, label = (np.array(column) for column in zip(*rows, strict=True))
    found = threshold_for(probability, label, float(target))
    positives = [p for p, relevant in rows if relevant]

    def rate(threshold: float) -> Fraction:
        return Fraction(sum(p < threshold for p in positives), len(positives))

    # Every threshold that tells some documents apart, and one above all of them.
    meeting = [t for t in [*sorted({p for p, _ in rows}), 2.0] if rate(t) <= target]
    assert rate(found.threshold) == max(map(rate, meeting))
    assert not [t for t in meeting if t > found.threshold]
    assert found.rate == float(rate(found.threshold)) and found.positives == len(positives)
    interval = binomtest(sum(p < found.threshold for p in positives), len(positives)).proportion_ci(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
