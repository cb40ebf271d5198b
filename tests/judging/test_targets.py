"""Thresholds that meet a target."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from anmi.judging.calibration import threshold_for

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


def test_the_interval_holds_the_true_rate_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside, runs, positives = 0, 300, 150
    for _ in range(runs):
        # Uniform probabilities of positives: the true rate below a threshold is the threshold itself.
        probability = np.append(rng.random(positives), 0.5)
        found = threshold_for(probability, np.arange(positives + 1) < positives, 0.02)
        inside += found.low <= found.threshold <= found.high
    assert binomtest(inside, runs, 0.95, alternative="less").pvalue > 1e-3
