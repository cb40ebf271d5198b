"""Exact search: against all scores at once, whatever the blocks, the order and the company of a query."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.retrieval import exact
from anmi.retrieval.exact import best, kth_at_least, nearest, similarities


def unit(values: np.ndarray) -> np.ndarray:
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def vectors(seed: int, count: int, width: int, copies: int = 0) -> np.ndarray:
    """Unit vectors, of which the last are copies of others, so that scores tie."""
    rng = np.random.default_rng(seed)
    made = unit(rng.normal(size=(count, width)))
    made[count - copies :] = made[rng.integers(0, count, copies)]
    return made


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), count=st.integers(1, 300), copies=st.integers(0, 150), width=st.integers(1, 40),
    rows=st.integers(1, 9), block=st.integers(1, 120), data=st.data(),
)  # fmt: skip
def test_the_nearest_are_those_of_a_full_sort(
    seed: int, count: int, copies: int, width: int, rows: int, block: int, data: st.DataObject
) -> None:
    documents, queries = vectors(seed, count, width, min(copies, count // 2)), vectors(seed + 1, 20, width)
    k = data.draw(st.integers(0, count))
    everything = np.tile(np.arange(count, dtype=np.int32), (20, 1))
    full = similarities(queries, documents, everything)
    order = np.lexsort((everything, -full), axis=1)[:, :k]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_ROWS", rows)
        patch.setattr(exact, "_BLOCK", block)
        found, scores = nearest(queries, documents, k)
    assert found.tolist() == order.tolist()
    assert (scores == np.take_along_axis(full, order, axis=1)).all()


@pytest.mark.parametrize("falling", [True, False])
def test_documents_that_get_ever_nearer_are_all_looked_at(falling: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block holds more above the threshold than there is room for."""
    monkeypatch.setattr(exact, "_BLOCK", 50)
    angle = np.linspace(0.1, 1.4, 1000)[:: 1 if falling else -1]
    documents = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    found, _ = nearest(np.array([[1, 0]], np.float32), documents, 3)
    assert found.tolist() == [[0, 1, 2] if falling else [999, 998, 997]]


def test_a_query_is_answered_the_same_alone_and_among_others() -> None:
    documents, queries = vectors(1, 2000, 64, 300), vectors(2, 40, 64)
    found, scores = nearest(queries, documents, 30)
    for row in (0, 7, 39):
        alone, values = nearest(queries[row : row + 1], documents, 30)
        assert (alone[0] == found[row]).all() and (values[0] == scores[row]).all()


def test_given_documents_are_scored_as_by_hand() -> None:
    documents, queries = vectors(3, 500, 32), vectors(4, 40, 32)
    given_ones = np.random.default_rng(3).integers(-1, 500, size=(40, 15)).astype(np.int32)
    expected = np.where(given_ones < 0, np.nan, np.take_along_axis(queries @ documents.T, given_ones, axis=1))
    np.testing.assert_allclose(similarities(queries, documents, given_ones), expected, atol=1e-6)
    assert similarities(queries, documents, given_ones[:, :0]).shape == (40, 0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 400), levels=st.integers(1, 50), data=st.data())
def test_the_best_are_those_of_a_full_sort(seed: int, count: int, levels: int, data: st.DataObject) -> None:
    full = (np.random.default_rng(seed).integers(0, levels, (7, count)) / 3).astype(np.float32)
    k = data.draw(st.integers(0, count))
    order = np.argsort(-full, axis=1, kind="stable")[:, :k]
    expected = np.take_along_axis(full, order, axis=1)
    documents, scores = best(full, k)
    assert (scores == expected).all()
    assert documents.tolist() == np.where(expected > 0, order, -1).tolist()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 3000), k=st.integers(1, 40))
def test_a_first_threshold_is_never_above_the_kth_best(seed: int, count: int, k: int) -> None:
    full = np.random.default_rng(seed).normal(size=(3, count)).astype(np.float32)
    least = kth_at_least(full, k)
    assert ((full >= least[:, None]).sum(axis=1) >= min(k, count)).all()


def test_nothing_is_near_a_vector_that_is_no_number() -> None:
    vectors = np.eye(4, dtype=np.float32)
    broken = np.full((1, 4), np.nan, np.float32)
    documents, scores = nearest(np.concatenate([vectors[:1], broken]), vectors, 2)
    assert documents.tolist() == [[0, 1], [-1, -1]]
    assert scores.tolist() == [[1, 0], [-np.inf, -np.inf]]
    assert nearest(broken, vectors, 2)[0].tolist() == nearest(vectors[:1], np.tile(broken, (4, 1)), 2)[0].tolist()
