"""How many of the most similar documents are relevant, where no positive can be hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, logit
from tests.judging.conftest import block_of

from anmi.candidates import Candidates
from anmi.judging.evidence import Material, Terms
from anmi.judging.fused import FEATURES, FusedModel
from anmi.judging.hidden import Examples, examples
from anmi.judging.prior import as_relevant, clusters, fit_contaminated, share_by_known, with_mean

WIDTH = len(FEATURES)


def model_of(intercept: float) -> FusedModel:
    return FusedModel((0.0,) * WIDTH, (1.0,) * WIDTH, (0.5,) * WIDTH, intercept)


@given(st.floats(-8, 2), st.floats(0.001, 0.5), st.integers(0, 99))
def test_all_odds_are_raised_by_one_factor_until_the_mean_is_the_share(
    intercept: float, least: float, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(size=(200, WIDTH)).astype(np.float32)
    model = model_of(intercept)
    found, share = with_mean(model, values, least)
    before = model(values)
    assert share == pytest.approx(max(before.mean(), least))
    assert found.coefficients == model.coefficients
    # Independent: the shift by bisection over a loop.
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(expit(float(each) + middle) for each in logit(before)) / len(before)
        low, high = (middle, high) if mean < least else (low, middle)
    expected = high if before.mean() < least else 0.0
    assert found.intercept - model.intercept == pytest.approx(expected, abs=1e-6)


def collection(queries: int, width: int = 12) -> tuple[Candidates, Material]:
    draw = np.random.default_rng(5)
    words = [f"w{number}" for number in range(50)]
    texts = [" ".join(draw.choice(words, 8)) for _ in range(80)]
    vectors = draw.normal(size=(80, 4)).astype(np.float32)
    material = Material(
        Terms.build(texts, lambda given: [text.split() for text in given]),
        {f"q{row}": " ".join(draw.choice(words, 3)) for row in range(queries)},
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
    )
    documents = np.array([draw.permutation(80)[: width + 1] for _ in range(queries)], np.int32)
    columns, own = {"dense": draw.random((queries, width))}, {"dense": np.full((queries, 1), 0.9)}
    return block_of(documents[:, 1:], documents[:, :1], columns, own), material


def test_too_few_known_positives_among_the_most_similar_say_nothing() -> None:
    block, material = collection(30)
    ask = {"depth": 12, "ridge": 0.003, "expected": 0.02}
    share = share_by_known([block], material, least=30, **ask)
    assert share is not None and 0 < share < 1
    assert share_by_known([block], material, least=31, **ask) is None
    far = replace(block, positive_columns={"dense": np.full((30, 1), -0.5, np.float32)})
    assert share_by_known([far], material, least=1, **ask) is None, "none of them would have been found"
    halves = [block.take(slice(0, 11)), block.take(slice(11, None))]
    assert share_by_known(halves, material, least=30, **ask) == pytest.approx(share, rel=1e-3), "whatever the shards"


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 99))
def test_a_positive_is_one_of_at_most_so_many_as_relevant(relevant: int, shard: int, seed: int) -> None:
    """Of ``relevant`` documents before all others one is labelled: it is first in one of so many queries."""
    draw = np.random.default_rng(seed)
    queries, width = 60 * relevant, 130
    order = np.arange(width)[None, :].repeat(queries, axis=0)
    place = np.tile(np.arange(relevant), 60)
    score = (width - order).astype(np.float32)
    own = np.take_along_axis(score, place[:, None], axis=1)
    rest = order != place[:, None]
    nothing = draw.random((queries, width)).astype(np.float32)
    columns = {"dense": score[rest].reshape(queries, -1), "bm25": nothing[:, 1:]}
    documents = (1 + order[rest]).reshape(queries, width - 1)
    block = block_of(documents, np.zeros((queries, 1)), columns, {"dense": own, "bm25": nothing[:, :1]})
    count, reached = as_relevant([block.take(slice(at, None, shard)) for at in range(shard)], 100)
    assert (count, reached) == (pytest.approx(relevant), 1.0), "the better of the rankings counts, whatever the shards"
    hopeless, reached = as_relevant([replace(block, positive_columns=dict.fromkeys(("dense", "bm25"), 0 * own))], 100)
    assert (hopeless, reached) == (2 * queries, 0.0)


def test_a_group_is_what_is_far_more_like_the_positive_than_all_others() -> None:
    group, others = np.linspace(0.9, 0.4, 20), np.linspace(0.19, 0.0, 40)
    cases = [
        (np.concatenate([group, others]), 20),
        (np.concatenate([group[:2], np.full(18, 0.19), others]), 0),
        (np.concatenate([group / 3, others / 3]), 0),
        (np.linspace(0.9, 0.2, 60), 0),
        (np.append(np.full(59, np.nan), 0.9), 0),
    ]
    order = np.random.default_rng(3).permutation(60)
    found = clusters(np.array([values[order] for values, _ in cases], np.float32))
    for row, (values, size) in zip(found, cases, strict=True):
        assert set(np.flatnonzero(row)) == set(np.flatnonzero(np.isin(order, np.argsort(-values)[:size])))


QUERIES, POOL = 250, 100


def made(positives: int, prior: float, seed: int = 5) -> tuple[Candidates, NDArray[np.float32], NDArray[np.bool_]]:
    """Make a block whose rows hold a labelled document and a pool, its inputs [R, 1 + M, 2], and what is relevant.

    Two pieces of evidence, together as good as an AUC of 0.96; all documents of a query are alike, and so are its
    positives, of which four are hidden at most.
    """
    draw = np.random.default_rng(seed)
    query = np.repeat(np.arange(QUERIES), min(positives, 4))
    pool = np.arange(POOL)
    relevant = np.concatenate([np.ones((len(query), 1)), (draw.random((QUERIES, POOL)) < prior)[query]], axis=1) > 0
    of_pool = draw.normal(size=(QUERIES, POOL, 2)) + 0.3 * draw.normal(size=(QUERIES, 1, 2))
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
