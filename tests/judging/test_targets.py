"""Thresholds that meet a target."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from anmi.errors import AnmiError
from anmi.judging.targets import (
    Guarantee,
    clopper_pearson,
    expected_leak,
    positives_needed,
    threshold_for,
    threshold_for_leak,
)

# Few distinct values, so that there are ties.
ROWS = st.lists(st.tuples(st.integers(0, 12).map(lambda i: i / 12), st.booleans()), min_size=2, max_size=60).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@given(rows=ROWS, target=st.fractions(0, Fraction(39, 40), max_denominator=40))
@settings(max_examples=150, deadline=None)
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
    others = [p for p, relevant in rows if not relevant]
    assert found.kept_share == pytest.approx(sum(p < found.threshold for p in others) / len(others))


@given(rows=ROWS, target=st.floats(0.05, 0.95), confidence=st.sampled_from([0.5, 0.9, 0.95]))
@settings(max_examples=100, deadline=None)
def test_with_a_guarantee_the_upper_end_meets_the_target_or_more_positives_are_asked_for(
    rows: list[tuple[float, bool]], target: float, confidence: float
) -> None:
    probability, label = (np.array(column) for column in zip(*rows, strict=True))
    positives = probability[label]

    def upper(threshold: float) -> float:
        below = int((positives < threshold).sum())
        return float(binomtest(below, len(positives)).proportion_ci(confidence).high)

    meeting = [t for t in np.unique(positives) if upper(t) <= target]
    if meeting:
        found = threshold_for(probability, label, target, confidence, guarantee="upper")
        assert found.threshold == max(meeting) and found.high == pytest.approx(upper(found.threshold))
    else:
        needed = positives_needed(target, confidence)
        assert needed > len(positives)
        with pytest.raises(AnmiError, match=f"on {len(positives)} held-out positives; {needed} are needed"):
            threshold_for(probability, label, target, confidence, guarantee="upper")


@pytest.mark.parametrize("target", [0.01, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_as_many_positives_as_are_asked_for_suffice_and_one_less_does_not(target: float, confidence: float) -> None:
    needed = positives_needed(target, confidence)
    assert binomtest(0, needed).proportion_ci(confidence).high <= target
    assert binomtest(0, needed - 1).proportion_ci(confidence).high > target
    probability, label = np.linspace(0, 1, needed + 1), np.arange(needed + 1) > 0
    assert threshold_for(probability, label, target, confidence, guarantee="upper").rate == 0


def test_a_guarantee_of_zero_is_beyond_any_number_of_positives() -> None:
    with pytest.raises(AnmiError, match="none ever can for 0"):
        threshold_for(np.linspace(0, 1, 50), np.arange(50) % 2, 0, guarantee="upper")


@pytest.mark.parametrize(("positives", "target"), [(40, 0.05), (150, 0.02), (400, 0.1)])
def test_the_interval_holds_the_true_rate_as_often_as_it_says(positives: int, target: float) -> None:
    rng = np.random.default_rng(positives)
    inside, runs, nominal = 0, 1500, 0.9
    for _ in range(runs):
        # Uniform probabilities of positives: the true rate below a threshold is the threshold itself.
        probability = np.concatenate([rng.random(positives), [0.5]])
        found = threshold_for(probability, np.arange(positives + 1) < positives, target, nominal)
        assert found.rate <= target
        inside += found.low <= found.threshold <= found.high
    # Below what 1,500 runs of the nominal coverage would show once in a thousand times.
    assert binomtest(inside, runs, nominal, alternative="less").pvalue > 1e-3


@pytest.mark.parametrize("rounded", [False, True])
def test_the_guaranteed_rate_is_exceeded_no_more_often_than_it_says(rounded: bool) -> None:
    rng = np.random.default_rng(3)
    exceeded, runs, target = 0, 1500, 0.05
    for _ in range(runs):
        values = rng.integers(0, 50, 200) / 50 if rounded else rng.random(200)
        found = threshold_for(
            np.concatenate([values, [0.5]]), np.arange(201) < 200, target, confidence=0.9, guarantee="upper"
        )
        exceeded += found.threshold > target
    assert binomtest(exceeded, runs, 0.05, alternative="greater").pvalue > 1e-3


def test_weights_count_as_copies_and_missing_ones_are_left_out() -> None:
    rng = np.random.default_rng(0)
    probability, label, copies = rng.random(80), rng.random(80) < 0.5, rng.integers(0, 4, 80)
    weighted = threshold_for(probability, label, 0.1, weights=copies.astype(float))
    copied = threshold_for(np.repeat(probability, copies), np.repeat(label, copies), 0.1)
    assert (weighted.threshold, weighted.rate) == (copied.threshold, pytest.approx(copied.rate))
    assert weighted.kept_share == pytest.approx(copied.kept_share)
    # Copies bring no knowledge, so the interval must not narrow.
    assert weighted.positives == (label & (copies > 0)).sum() and weighted.high > copied.high
    holes = np.concatenate([probability, [np.nan, np.nan]])
    assert threshold_for(holes, np.concatenate([label, [True, False]]), 0.1) == threshold_for(probability, label, 0.1)


@pytest.mark.parametrize("guarantee", ["estimate", "upper"])
@pytest.mark.parametrize("label", [0, 1])
def test_labels_of_one_class_give_no_threshold(guarantee: Guarantee, label: int) -> None:
    with pytest.raises(AnmiError, match="only one kind"):
        threshold_for(np.linspace(0, 1, 300), np.full(300, label), 0.1, guarantee=guarantee)


@pytest.mark.parametrize(("target", "confidence"), [(1.0, 0.95), (-0.1, 0.95), (0.1, 1.0), (math.nan, 0.95)])
def test_targets_out_of_range_are_refused(target: float, confidence: float) -> None:
    with pytest.raises(AnmiError, match="out of range"):
        threshold_for(np.array([0.1, 0.9]), np.array([0, 1]), target, confidence)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_the_interval_is_that_of_scipy(confidence: float) -> None:
    low, high = clopper_pearson(np.arange(31), 30, confidence)
    expected = [binomtest(k, 30).proportion_ci(confidence) for k in range(31)]
    np.testing.assert_allclose(low, [each.low for each in expected], atol=1e-10)
    np.testing.assert_allclose(high, [each.high for each in expected], atol=1e-10)


@given(
    grid=st.lists(st.integers(0, 64), min_size=1, max_size=40),
    target=st.integers(0, 64),
    shape=st.sampled_from([(-1,), (-1, 1)]),
)
@settings(max_examples=150, deadline=None)
def test_the_threshold_for_a_leak_is_the_highest_that_meets_it(
    grid: list[int], target: int, shape: tuple[int, ...]
) -> None:
    probability = np.array([*grid, np.nan], float).reshape(shape) / 64
    # Sixty-fourths, and sums of them, are exact.
    prefixes = {value: [g for g in grid if g <= value] for value in grid}
    meeting = [value for value, kept in prefixes.items() if sum(kept) <= target * len(kept)]
    if not meeting:
        with pytest.raises(AnmiError, match="cannot be met"):
            threshold_for_leak(probability, target / 64)
        return
    found, kept = threshold_for_leak(probability, target / 64), prefixes[max(meeting)]
    assert found.kept == len(kept) == np.count_nonzero(probability < found.threshold)
    assert found.leak == pytest.approx(sum(kept) / len(kept) / 64)
    assert found.leak == pytest.approx(expected_leak(probability, found.threshold))
    assert found.kept_share == len(kept) / len(grid)
    rest = [g / 64 for g in grid if g > max(meeting)]
    assert found.threshold == min(rest, default=1.0 if max(grid) < 64 else math.inf)


def test_the_expected_leak_is_the_leak_of_a_calibrated_judge() -> None:
    rng = np.random.default_rng(1)
    probability = rng.beta(0.5, 3, 200_000)
    relevant = rng.random(200_000) < probability
    found = threshold_for_leak(probability, 0.03)
    assert 0.029 < found.leak <= 0.03
    assert relevant[probability < found.threshold].mean() == pytest.approx(0.03, abs=0.002)
    assert expected_leak(probability) == pytest.approx(relevant.mean(), abs=0.003)


def test_a_leak_of_nothing_is_no_number() -> None:
    assert math.isnan(expected_leak(np.array([0.5, np.nan]), 0.2))
    with pytest.raises(AnmiError, match="none that is finite"):
        threshold_for_leak(np.full(3, np.nan), 0.1)
