"""How many of the most similar documents are relevant, where no positive can be hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from tests.judging.conftest import block_of

from anmi.candidates import Candidates
from anmi.judging.evidence import Material, Terms
from anmi.judging.fused import FEATURES, FusedModel
from anmi.judging.prior import as_relevant, clusters, share_by_known, with_mean

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
