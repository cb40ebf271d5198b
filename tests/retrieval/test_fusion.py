"""Fusing two rankings: against a slow, readable reference, and what users rely on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import METHODS, Ranked, Spreads, aligned, fuse

PADDING = -1
# Distinct, or the order would be that of ties; whole, so that sums are exact.
SCORES = st.lists(st.integers(1, 60), min_size=0, max_size=6, unique=True).map(lambda v: sorted(v, reverse=True))


@st.composite
def lists(draw: Any) -> tuple[list[int], list[int]]:
    """The documents and scores of one query."""
    scores = draw(SCORES)
    documents = draw(st.lists(st.integers(0, 9), min_size=len(scores), max_size=len(scores), unique=True))
    return documents, scores


def padded(found: list[tuple[list[int], list[int]]], width: int = 6) -> Ranked:
    documents, scores = np.full((len(found), width), PADDING, np.int32), np.zeros((len(found), width), np.float32)
    for row, (ids, values) in enumerate(found):
        documents[row, : len(ids)], scores[row, : len(ids)] = ids, values
    return Ranked(documents, scores)


def reference(
    bm25: tuple[list[int], list[int]], dense: tuple[list[int], list[int]], spreads: tuple[float, float],
    method: str, weight: float, width: int = 6,
) -> dict[int, float]:  # fmt: skip
    """The score of every document, one after another."""
    found = {}
    for document in {*bm25[0], *dense[0]}:
        if method == "rrf":
            ranks = [part[0].index(document) + 1 for part in (bm25, dense) if document in part[0]]
            found[document] = sum(1 / (60 + rank) for rank in ranks)
            continue
        parts = []
        for (ids, scores), spread, full in ((bm25, spreads[0], width), (dense, spreads[1], 0)):
            least = (scores[-1] if len(scores) >= full else 0) if scores else 0
            score = scores[ids.index(document)] if document in ids else least
            parts.append(score / spread if spread > 0 else 0)
        found[document] = (1 - weight) * parts[0] + weight * parts[1]
    return found


@given(
    st.lists(st.tuples(lists(), lists(), st.sampled_from([0.0, 0.5, 2.0])), min_size=1, max_size=4),
    st.sampled_from(METHODS), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 12),
)  # fmt: skip
def test_it_is_what_the_slow_reference_says(rows: Any, method: Any, weight: float, k: int) -> None:
    bm25, dense = padded([row[0] for row in rows]), padded([row[1] for row in rows])
    spreads = Spreads(np.array([row[2] for row in rows]), 0.25)
    found = fuse(bm25, dense, k, spreads, method, weight)
    assert found.documents.shape[1] <= k
    for i, (sparse, cosines, spread) in enumerate(rows):
        expected = reference(sparse, cosines, (spread, 0.25), method, weight)
        listed = [int(document) for document in found.documents[i] if document != PADDING]
        assert len(listed) == min(k, len(expected))
        scores = found.scores[i, : len(listed)]
        np.testing.assert_allclose(scores, [expected[document] for document in listed], rtol=1e-5)
        np.testing.assert_allclose(scores, sorted(expected.values(), reverse=True)[: len(listed)], rtol=1e-5)
        for part, (ranks, values) in (
            (sparse, (found.bm25_ranks, found.bm25_scores)), (cosines, (found.dense_ranks, found.dense_scores)),
        ):  # fmt: skip
            for place, document in enumerate(listed):
                if document in part[0]:
                    rank = part[0].index(document)
                    assert (ranks[i, place], values[i, place]) == (rank + 1, part[1][rank])
                else:
                    assert np.isnan(ranks[i, place]) and np.isnan(values[i, place])


@given(st.lists(st.tuples(lists(), lists()), min_size=1, max_size=4))
def test_one_query_does_not_depend_on_the_others(rows: Any) -> None:
    bm25, dense = padded([row[0] for row in rows]), padded([row[1] for row in rows])
    whole = fuse(bm25, dense, 12, Spreads(np.ones(len(rows)), 1.0))
    for i in range(len(rows)):
        part = slice(i, i + 1)
        alone = fuse(bm25.of(part), dense.of(part), 12, Spreads(np.ones(1), 1.0))
        kept = alone.documents.shape[1]
        assert whole.documents[i, :kept].tolist() == alone.documents[0].tolist()
        assert (whole.documents[i, kept:] == PADDING).all()


@pytest.mark.parametrize(("weight", "first"), [(0.0, [3, 1]), (1.0, [1, 5])])
def test_all_weight_on_one_part_leaves_its_order(weight: float, first: list[int]) -> None:
    bm25 = Ranked(np.array([[3, 1, 7]], np.int32), np.array([[9, 4, 2]], np.float32))
    dense = Ranked(np.array([[1, 5, 3]], np.int32), np.array([[0.9, 0.5, 0.4]], np.float32))
    # Only with the last that it lists are those level that it does not.
    found = fuse(bm25, dense, 2, Spreads(np.array([2.0]), 0.1), weight=weight)
    assert found.documents[0].tolist() == first


def test_nothing_is_found_where_neither_part_finds_anything() -> None:
    nothing = Ranked(np.full((2, 3), PADDING, np.int32), np.zeros((2, 3), np.float32))
    for method in METHODS:
        found = fuse(nothing, nothing, 5, Spreads(np.zeros(2), 1.0), method)  # type: ignore[arg-type]
        assert found.documents.shape == (2, 0)
    assert aligned(nothing, nothing).documents.shape == (2, 0)


def test_bm25_tells_how_far_its_scores_spread() -> None:
    texts = ["red fox den", "blue whale", "red whale song", "a green tree"]
    index = BM25Index.build(texts, "en")
    documents, scores, spread = index.search_and_spread(["red fox", "whale", "nothing of it"], 3)
    full = np.concatenate([part.copy() for _, part in index.scored(["red fox", "whale", "nothing of it"], 3)])
    np.testing.assert_allclose(spread, full.std(axis=1), rtol=1e-6)
    assert spread[2] == 0 and (documents[2] == PADDING).all()
    np.testing.assert_array_equal(index.search(["red fox"], 3)[1], scores[:1])
