"""The expected share of relevant documents, and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from anmi.judging.expected import ExpectedShare


def found_of(probability: NDArray[np.floating], queries: NDArray[np.generic], step: int = 10**9) -> ExpectedShare:
    found = ExpectedShare()
    for start in range(0, len(probability), step):
        found.add(probability[start : start + step], queries[start : start + step])
    return found


def test_it_is_the_mean_whatever_the_blocks_and_its_bounds_follow_the_formula() -> None:
    draw = np.random.default_rng(1)
    probability = np.where(draw.random((60, 5)) < 0.2, np.nan, draw.beta(0.5, 9, (60, 5)))
    queries = np.repeat(np.arange(30), 2)
    found, parts = found_of(probability, queries), found_of(probability, queries, 4)
    assert found.share == pytest.approx(np.nanmean(probability)) == parts.share
    assert found.interval == pytest.approx(parts.interval)
    # Independent: a loop over the queries.
    for factor, side, bound in ((0.05, -1, found.interval[0]), (3.0, 1, found.interval[1])):
        odds = factor * probability / (1 - probability)
        scaled = odds / (1 + odds)
        share, total = np.nanmean(scaled), np.isfinite(scaled).sum()
        spread = sum(
            (np.nansum(scaled[queries == q]) - share * np.isfinite(scaled[queries == q]).sum()) ** 2 for q in range(30)
        )
        variance = (30 / 29 * spread + np.nansum(scaled * (1 - scaled))) / total**2
        assert bound == pytest.approx(max(share + side * 1.96 * np.sqrt(variance), 0))


def test_of_nothing_nothing_is_known() -> None:
    found = found_of(np.full((3, 2), np.nan), np.arange(3))
    assert (found.documents, found.interval) == (0, (0.0, 1.0)) and np.isnan(found.share)


def test_probabilities_of_one_are_allowed() -> None:
    assert found_of(np.ones((4, 2)), np.arange(4)).interval == (1.0, 1.0)
