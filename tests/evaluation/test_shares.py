"""Shares of negatives that come in rows, against slow, readable references and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from anmi.evaluation.significance import share, share_of_pairs, wilson


def rows_of(rng: np.random.Generator, queries: int, value: float, effect: float, width: int = 15) -> NDArray[np.int64]:
    """Relevant negatives of each query, whose chances scatter so that the share has a design effect."""
    likeness = (effect - 1) / (width - 1)
    a, b = value * (1 - likeness) / likeness, (1 - value) * (1 - likeness) / likeness
    return rng.binomial(width, rng.beta(a, b, queries))


@pytest.mark.parametrize(
    ("queries", "value", "effect", "least"), [(500, 0.03, 6.0, 0.91), (200, 0.2, 4.0, 0.91), (300, 0.05, 1.01, 0.93)]
)
def test_nineteen_of_twenty_intervals_hold_the_truth(queries: int, value: float, effect: float, least: float) -> None:
    """Simulated rows; the interval of independent negatives holds it far less often."""
    rng = np.random.default_rng(4)
    inside = naive = 0
    for _ in range(300):
        counts = rows_of(rng, queries, value, effect)
        found = share(counts, np.full(queries, 15), resamples=500)
        inside += found.low <= value <= found.high
        low, high = binomtest(int(counts.sum()), queries * 15).proportion_ci(0.95, method="wilson")
        naive += low <= value <= high
    assert inside / 300 >= least
    assert (naive / 300 < 0.75) == (effect > 2)


@pytest.mark.parametrize("width", [1, 7, 50])
def test_where_none_was_found_queries_count_and_not_negatives(width: int) -> None:
    found = share(np.zeros(200), np.full(200, width))
    expected = binomtest(0, 200).proportion_ci(0.95, method="wilson")
    assert (found.value, found.low, found.high) == (0, 0, pytest.approx(expected.high))
    assert math.isnan(found.design_effect)
    turned = share(np.full(200, width), np.full(200, width))
    assert (turned.value, turned.low, turned.high) == (1, pytest.approx(1 - expected.high), 1)


def test_nothing_is_known_of_nothing_and_little_of_one_query() -> None:
    empty = share(np.zeros(3), np.zeros(3))
    assert math.isnan(empty.value)
    assert (empty.low, empty.high, empty.queries) == (0, 1, 0)
    one = share(np.array([500]), np.array([1000]))
    assert one.high - one.low > 0.8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.randoms())
def test_it_holds_the_estimate_whatever_the_order(pairs: list[tuple[int, int]], random: object) -> None:
    rows = [(min(pair), max(pair)) for pair in pairs]
    found = share(*np.array(rows).T, resamples=200)
    assert 0 <= found.low <= found.high <= 1
    if found.total:
        assert found.low - 1e-9 <= found.value <= found.high + 1e-9
    random.shuffle(rows)  # type: ignore[attr-defined]
    again = share(*np.array(rows).T, resamples=200)
    assert (again.low, again.high) == (found.low, found.high)


def test_pairs_count_as_often_as_they_were_negatives() -> None:
    pairs = pd.DataFrame({"query_id": list("aabb"), "document_id": list("xyxz"), "count": [3, 1, 2, 4]})
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
        pytest.approx(expected.low, abs=1e-9), pytest.approx(expected.high, abs=1e-9),
    )  # fmt: skip
