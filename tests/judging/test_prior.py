"""How many of the most similar documents are relevant, where no positive can be hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from anmi.candidates import PADDING, Candidates
from anmi.judging.evidence import Material, Terms, gather
from anmi.judging.fused import FEATURES, FusedModel, features
from anmi.judging.prior import most_similar, raised, share_by_known

WIDTH = len(FEATURES)


def model_of(intercept: float) -> FusedModel:
    return FusedModel((0.0,) * WIDTH, (1.0,) * WIDTH, (0.5,) * WIDTH, intercept)


@given(st.floats(-8, 2), st.floats(0.001, 0.5), st.integers(0, 99))
def test_all_odds_are_raised_by_one_factor_until_the_mean_is_the_share(
    intercept: float, least: float, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(size=(200, WIDTH)).astype(np.float32)
    model = model_of(intercept)
    found, share = raised(model, values, least)
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


def test_documents_of_which_nothing_is_known_do_not_count() -> None:
    values = np.random.default_rng(1).normal(size=(50, WIDTH)).astype(np.float32)
    unknown = np.full((400, WIDTH), np.nan, np.float32)
    both, alone = (raised(model_of(-6.0), each, 0.1) for each in (np.concatenate([values, unknown]), values))
    assert both == alone
    assert raised(model_of(-6.0), unknown, 0.1) == (model_of(-6.0), 0.1), "and of nothing there is no mean to raise"


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
    block = Candidates(
        query_ids=np.array([f"q{row}" for row in range(queries)]),
        positives=documents[:, :1],
        documents=documents[:, 1:],
        source=np.zeros((queries, width), np.uint8),
        columns={"dense": draw.random((queries, width)).astype(np.float32)},
        positive_columns={"dense": np.full((queries, 1), 0.9, np.float32)},
    )
    return block, material


def test_only_the_most_similar_are_looked_at() -> None:
    block, material = collection(6)
    documents = block.documents.copy()
    documents[0, 2] = PADDING
    block = replace(block, documents=documents)
    whole = features(gather(block, material))
    found = most_similar([block.take(slice(0, 2)), block.take(slice(2, None))], material, 5)
    expected = []
    for row in range(6):
        there = [place for place in range(12) if block.documents[row, place] != PADDING]
        near = sorted(there, key=lambda place: -block.columns["dense"][row, place])[:5]
        expected += [whole[row, place] for place in near]
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-5)
    assert most_similar([], material, 5).shape == (0, WIDTH)


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
