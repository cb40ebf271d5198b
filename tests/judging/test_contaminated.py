"""Learning from positives beside a pool that holds relevant documents nobody labelled, on made collections."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from anmi.candidates import Candidates
from anmi.judging.hidden import Examples, examples
from anmi.judging.prior import fit_contaminated

QUERIES, WIDTH = 250, 100


def made(positives: int, prior: float, seed: int = 5) -> tuple[Candidates, NDArray[np.float32], NDArray[np.bool_]]:
    """Make a block whose rows hold a labelled document and a pool, its inputs [R, 1 + M, 2], and what is relevant.

    Two pieces of evidence, together as good as an AUC of 0.96; all documents of a query are alike, and so are its
    positives, of which four are hidden at most.
    """
    draw = np.random.default_rng(seed)
    query = np.repeat(np.arange(QUERIES), min(positives, 4))
    pool = np.arange(WIDTH)
    relevant = np.concatenate([np.ones((len(query), 1)), (draw.random((QUERIES, WIDTH)) < prior)[query]], axis=1) > 0
    of_pool = draw.normal(size=(QUERIES, WIDTH, 2)) + 0.3 * draw.normal(size=(QUERIES, 1, 2))
    of_positive = draw.normal(size=(len(query), 1, 2)) + 0.3 * draw.normal(size=(QUERIES, 1, 2))[query]
    values = np.concatenate([of_positive, of_pool[query]], axis=1) + np.array([2.0, 1.5]) * relevant[:, :, None]
    documents = np.concatenate([1000 + np.arange(len(query))[:, None], np.tile(pool, (len(query), 1))], axis=1)
    ids, source = np.array([f"q{each:03}" for each in query]), np.full(documents.shape, 2, np.uint8)
    block = Candidates(ids, np.zeros((len(query), 0), np.int32), documents.astype(np.int32), source)
    return block, values.astype(np.float32), relevant


def taken(block: Candidates, values: NDArray[np.float32]) -> Examples:
    found = examples([(block, values, np.zeros(len(block), np.int64))])
    assert found is not None
    return found


def fitted(seen: Examples, expected: float = 0.016) -> tuple[NDArray[np.float64], float, float]:
    found = fit_contaminated(
        seen.values, seen.labelled, seen.weights, np.array([1.0, 1.0]), 0.003, expected, seen.queries
    )
    return np.array(found.coefficients), found.intercept, found.share


@pytest.mark.parametrize(("positives", "prior"), [(1, 0.0001), (5, 0.01), (40, 0.05), (1, 0.2)])
def test_the_share_of_relevant_documents_in_the_pool_is_found_and_the_chances_say_it(
    positives: int, prior: float
) -> None:
    block, values, relevant = made(positives, prior)
    slopes, intercept, share = fitted(taken(block, values))
    assert share == pytest.approx(prior, rel=0.5, abs=0.006)
    first = np.unique(block.query_ids, return_index=True)[1]
    pool, truth = values[first, 1:], relevant[first, 1:]
    probability = expit(pool @ slopes + intercept)
    assert probability.mean() == pytest.approx(truth.mean(), rel=0.5, abs=0.006)
    if prior >= 0.05:
        assert truth[probability < np.median(probability)].mean() < 0.1 * truth.mean()


def test_positives_of_one_query_count_as_one() -> None:
    """Each of a query's positives many times over is the same evidence, and so are many rows of its pool."""
    block, values, _ = made(5, 0.05)
    seen = taken(block, values)
    again = np.repeat(np.arange(len(block)), np.where(np.arange(len(block)) < 400, 3, 1))
    # Only whole queries are repeated, four rows each.
    repeated = taken(block.take(again), values[again])
    one, other = fitted(seen), fitted(repeated)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-3)
    assert one[1:] == pytest.approx(other[1:], rel=5e-3)


def test_the_gradient_is_that_of_the_likelihood() -> None:
    """The optimum is a stationary point: no small step in any direction is better."""
    block, values, _ = made(1, 0.05)
    seen = taken(block, values)
    slopes, intercept, share = fitted(seen)
    odds = np.log(share / (1 - share))

    def loss(point: NDArray[np.float64]) -> float:
        ratio = np.exp(seen.values @ point[:2] + point[2])
        pi = expit(point[3])
        relevant = pi * ratio / (pi * ratio + 1 - pi)
        chance = relevant / (relevant + pi)
        fit = np.where(seen.labelled, np.log(chance), np.log1p(-chance))
        spread = (point[3] - np.log(0.016 / 0.984)) ** 2 / 8 / (10 * seen.queries)
        return float(-np.average(fit, weights=seen.weights) + 0.003 * ((point[:2] - 1) ** 2).sum() + spread)

    best = np.array([*slopes, intercept - odds, odds])
    for axis in range(4):
        for step in (-0.05, 0.05):
            assert loss(best + step * np.eye(4)[axis]) > loss(best)
