"""Samplers by probability: exact distributions, against enumeration, and importance weights."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare
from tests.selection.conftest import apply, candidates

from anmi.candidates import Candidates

SCORES = [0.9, 0.62, 0.55, 0.4, np.nan, 0.5]
RANKS = [1, 3, 4, 7, np.nan, 5]
TRIALS = 6000


def rows_of(count: int = 1, positive: float = 0.6, positive_rank: float = 3) -> Candidates:
    """The same tiny row under many queries, so that each draws from its own stream; the last candidate is out."""
    columns = {"dense": SCORES, "dense_rank": RANKS, "hardness": [0.1, 0.4, 0.0, -1.0, np.nan, 0.5]}
    own = {"dense": positive, "dense_rank": positive_rank}
    block = candidates({name: np.tile(values, (count, 1)) for name, values in columns.items()}, own)
    return block.rejected("margin", np.arange(len(SCORES)) == len(SCORES) - 1)


def expected_chances(form: str, a: float, b: float) -> NDArray[np.float64]:
    """Probabilities of the four candidates in play, written out."""
    scores, ranks = np.array(SCORES[:4]), np.array(RANKS[:4]) - 1
    if form == "rank":
        density = np.exp(-a * np.abs(ranks - b * 2))
    else:
        peak = b if form == "score" else -b
        density = np.exp(-a / np.var(scores - 0.6) * (scores - 0.6 - peak) ** 2)
    result: NDArray[np.float64] = density / density.sum()
    return result


def inclusion(chances: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Chance of being among ``count`` draws without replacement, by going through all orders."""
    result = np.zeros(len(chances))
    for order in permutations(range(len(chances)), count):
        chance, left = 1.0, 1.0
        for drawn in order:
            chance *= chances[drawn] / left
            left -= chances[drawn]
        result[list(order)] += chance
    return result


FORMS = [
    ({"form": "score"}, ("score", 0.5, 0.0)),
    ({"form": "released", "a": 1, "b": 0.1}, ("released", 1, 0.1)),
    ({"form": "rank"}, ("rank", 1.0, 1.5)),
    ({"form": "rank", "a": 0.3, "b": 1}, ("rank", 0.3, 1.0)),
]


@pytest.mark.parametrize(("params", "written"), FORMS)
def test_draws_have_exactly_the_distribution_of_the_formula(params: dict[str, Any], written: Any) -> None:
    chances = expected_chances(*written)
    block = rows_of(TRIALS)
    after = apply(block, "simans", 2, **params)
    assert (after.negatives.sum(axis=1) == 2).all() and not after.negatives[:, 4:].any()
    first = (after.columns["choice"] == 1).sum(axis=0)[:4]
    assert chisquare(first, TRIALS * chances).pvalue > 1e-3
    # Each row holds two, so the counts are less spread than independent ones, and the test is on the safe side.
    both = after.negatives.sum(axis=0)[:4]
    assert chisquare(both, TRIALS * inclusion(chances, 2)).pvalue > 1e-3
    # The test can fail: without the formula all would be alike.
    assert chisquare(first).pvalue < 1e-3


def test_draws_by_a_column_have_exactly_its_distribution() -> None:
    after = apply(rows_of(TRIALS), "draw", 1)
    assert chisquare(after.negatives.sum(axis=0)[[0, 1]], TRIALS * np.array([0.2, 0.8])).pvalue > 1e-3
    # What has no chance is never drawn, though a negative is missing then.
    assert (apply(rows_of(50), "draw", 3).negatives == [True, True, False, False, False, False]).all()


def test_importance_is_the_inverse_chance_with_a_mean_of_one() -> None:
    block = rows_of(40)
    after, weighed = apply(block, "simans", 3), apply(block, "simans", 3, weigh=True)
    inverse = np.append(1 / expected_chances("score", 0.5, 0.0), [np.nan, np.nan])
    inverse = np.where(after.negatives, inverse, np.nan)
    means, largest = (summary(inverse, axis=1, keepdims=True) for summary in (np.nanmean, np.nanmax))
    np.testing.assert_allclose(after.columns["importance"], inverse / means, rtol=1e-5)
    assert (after.weight == 1).all() and (weighed.negatives == after.negatives).all()
    np.testing.assert_allclose(weighed.weight[after.negatives], (inverse / largest)[after.negatives], rtol=1e-5)
