"""Intervals and tests against SciPy and slow, readable references."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest

from anmi.errors import AnmiError
from anmi.evaluation.significance import (
    compare,
    compare_all,
    holm,
    interval,
    intervals,
    share,
    share_of_pairs,
    wilson,
)
from anmi.seeds import stream


@pytest.mark.parametrize("queries", [9, 300])
def test_tests_of_several_differences_are_scipys_of_each(queries: int):
    differences = np.random.default_rng(5).normal([[0.0], [0.08], [-0.1]], 0.8, (3, queries))
    differences[2, ::2] = 0
    for found, row in zip(compare_all(differences, seed=3), differences, strict=True):
        options = {"permutation_type": "samples", "vectorized": True, "n_resamples": 10_000}
        test = stats.permutation_test((row,), np.mean, rng=stream(4, "other"), **options)
        expected = test.pvalue
        # Exact with few queries; otherwise two samples of 10,000 sign flips.
        assert found.p_value == pytest.approx(expected, abs=1e-12 if queries == 9 else 0.025)
        assert found._asdict() == pytest.approx(compare(row, np.zeros(queries), seed=3)._asdict())


def test_intervals_of_several_metrics_are_scipys_of_each():
    values = np.random.default_rng(0).random((3, 40)) ** 2
    values[2] = 0.25
    means, low, high = intervals(values, seed=3, resamples=2_000, confidence=0.9)
    for row in range(2):
        options = {"n_resamples": 2_000, "confidence_level": 0.9, "method": "percentile"}
        random = stream(3, "bootstrap")
        sample = (values[row],)
        bounds = stats.bootstrap(sample, np.mean, rng=random, batch=2_000, **options)
        bounds = bounds.confidence_interval
        np.testing.assert_allclose([low[row], high[row]], [bounds.low, bounds.high], rtol=1e-12)
    np.testing.assert_allclose(means, values.mean(axis=1))
    assert (low[2], high[2]) == (0.25, 0.25)


def test_queries_that_one_document_asks_count_as_one():
    one = np.random.default_rng(0).normal(0.3, 1, 30)
    many, groups = np.repeat(one, 5), np.repeat(np.arange(30), 5)
    assert interval(many, seed=1, groups=groups) == pytest.approx(interval(one, seed=1))
    found, nothing = compare(many, np.zeros(150), seed=1, groups=groups), np.zeros(30)
    assert found._asdict() == pytest.approx(compare(one, nothing, seed=1)._asdict())
    alone = compare(many, np.zeros(150), seed=1)
    assert found.high - found.low > 2 * (alone.high - alone.low)
    assert found.p_value > 2 * alone.p_value


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([0.1, np.nan, 0.2], [0.1, 0.2, 0.3], "not finite"),
        ([0.1, 0.2], [0.1, 0.2, 0.3], "same queries"),
        ([], [], "at least one"),
    ],
)
def test_unusable_values_are_refused(a, b, message):
    with pytest.raises(AnmiError, match=message):
        compare(np.array(a), np.array(b), seed=1)


def test_of_one_query_there_is_no_interval_and_nothing_is_shown():
    mean, low, high = interval(np.array([0.5]), seed=1)
    assert mean == 0.5
    assert np.isnan([low, high]).all()
    found = compare(np.array([0.9]), np.array([0.2]), seed=1)
    assert found.difference == pytest.approx(0.7)
    assert np.isnan([found.low, found.high]).all()
    assert found.p_value == 1.0, "flipping the only sign gives a difference of the same size"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_step_down_rule(p_values):
    found = holm(p_values)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        assert found[i] == pytest.approx(largest)


@pytest.mark.parametrize(("queries", "value", "effect"), [(500, 0.03, 6.0), (300, 0.05, 1.01)])
def test_nineteen_of_twenty_intervals_hold_the_truth(
    queries: int, value: float, effect: float
) -> None:
    """Simulated rows of relevant negatives whose chances scatter by query, so that the share has a design effect."""
    rng = np.random.default_rng(4)
    inside, runs, width = 0, 150, 15
    likeness = (effect - 1) / (width - 1)
    for _ in range(runs):
        chance = rng.beta(value * (1 / likeness - 1), (1 - value) * (1 / likeness - 1), queries)
        found = share(rng.binomial(width, chance), np.full(queries, width), resamples=500)
        inside += found.low <= value <= found.high
    assert inside / runs >= 0.9


@pytest.mark.parametrize("width", [1, 7, 50])
def test_where_none_was_found_queries_count_and_not_negatives(width: int) -> None:
    found, turned = (share(np.full(200, count), np.full(200, width)) for count in (0, width))
    expected = binomtest(0, 200).proportion_ci(0.95, method="wilson")
    assert (found.value, found.low, found.high) == (0, 0, pytest.approx(expected.high))
    assert math.isnan(found.design_effect)
    assert (turned.value, turned.low, turned.high) == (1, pytest.approx(1 - expected.high), 1)
    empty, one = share(np.zeros(3), np.zeros(3)), share(np.array([500]), np.array([1000]))
    assert math.isnan(empty.value) and (empty.low, empty.high, empty.queries) == (0, 1, 0)
    assert one.high - one.low > 0.8, "little is known of one query"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.randoms()
)
def test_it_holds_the_estimate_whatever_the_order(
    pairs: list[tuple[int, int]], random: object
) -> None:
    rows = [(min(pair), max(pair)) for pair in pairs]
    found = share(*np.array(rows).T, resamples=200)
    assert 0 <= found.low <= found.high <= 1
    if found.total:
        assert found.low - 1e-9 <= found.value <= found.high + 1e-9
    random.shuffle(rows)  # type: ignore[attr-defined]
    again = share(*np.array(rows).T, resamples=200)
    assert (again.low, again.high) == (found.low, found.high)


def test_pairs_count_as_often_as_they_were_negatives() -> None:
    pairs = pd.DataFrame(
        {"query_id": list("aabb"), "document_id": list("xyxz"), "count": [3, 1, 2, 4]}
    )
    relevant = pd.DataFrame({"query_id": ["a", "b", "c"], "document_id": ["x", "y", "z"]})
    found = share_of_pairs(pairs, relevant)
    assert (found.count, found.total, found.queries, found.affected) == (3, 10, 2, 1)
    assert share_of_pairs(pairs, relevant.iloc[:0]).count == 0
    assert share_of_pairs(pairs.iloc[:0], relevant).total == 0


@given(st.integers(1, 400), st.data())
def test_wilsons_interval_is_that_of_scipy(trials: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, trials))
    expected = binomtest(count, trials).proportion_ci(0.95, method="wilson")
    assert wilson(count / trials, trials) == (
        pytest.approx(expected.low, abs=1e-9),
        pytest.approx(expected.high, abs=1e-9),
    )
