"""Fusing two rankings: against a slow, readable reference, and what users rely on."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import Method, Ranked, fuse

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


PARTS = ("bm25", "dense", "sparse")
SPREAD = {"dense": 0.25, "sparse": 2.0}


def reference(
    parts: dict[str, tuple[list[int], list[int]]], spreads: dict[str, float], method: str, weights: dict[str, float],
    width: int = 6,
) -> dict[int, float]:  # fmt: skip
    """The score of every document, one after another."""
    found = {}
    for document in {document for ids, _ in parts.values() for document in ids}:
        if method == "rrf":
            ranks = [ids.index(document) + 1 for ids, _ in parts.values() if document in ids]
            found[document] = sum(1 / (60 + rank) for rank in ranks)
            continue
        found[document] = 0.0
        for name, (ids, scores) in parts.items():
            full = 0 if name == "dense" else width
            least = (scores[-1] if len(scores) >= full else 0) if scores else 0
            score = scores[ids.index(document)] if document in ids else least
            found[document] += weights[name] * (score / spreads[name] if spreads[name] > 0 else 0)
    return found


@given(
    st.lists(st.tuples(lists(), lists(), lists(), st.sampled_from([0.0, 0.5, 2.0])), min_size=1, max_size=4),
    st.sampled_from(get_args(Method)),
    st.sampled_from([(1.0, 0.0), (0.75, 0.25), (0.5, 0.5), (0.0, 1.0), (0.25, 0.5, 0.25)]),
    st.integers(1, 18),
)  # fmt: skip
def test_it_is_what_the_slow_reference_says(rows: Any, method: Any, given_weights: Any, k: int) -> None:
    weights = dict(zip(PARTS, given_weights, strict=False))
    listed = {name: padded([row[place] for row in rows]) for place, name in enumerate(weights)}
    spreads = {"bm25": np.array([row[3] for row in rows]), **SPREAD}
    found = fuse(listed, k, spreads, method, weights)
    assert found.documents.shape[1] <= k
    for i, (*parts, spread) in enumerate(rows):
        own = dict(zip(weights, parts, strict=False))
        expected = reference(own, {"bm25": spread, **SPREAD}, method, weights)
        documents = [int(document) for document in found.documents[i] if document != PADDING]
        assert len(documents) == min(k, len(expected))
        scores = found.scores[i, : len(documents)]
        np.testing.assert_allclose(scores, [expected[document] for document in documents], rtol=1e-5)
        np.testing.assert_allclose(scores, sorted(expected.values(), reverse=True)[: len(documents)], rtol=1e-5)
        for name, (ids, values) in own.items():
            ranks, said = found.part_ranks[name], found.part_scores[name]
            for place, document in enumerate(documents):
                if document in ids:
                    rank = ids.index(document)
                    assert (ranks[i, place], said[i, place]) == (rank + 1, values[rank])
                else:
                    assert np.isnan(ranks[i, place]) and np.isnan(said[i, place])


def test_bm25_tells_how_far_its_scores_spread() -> None:
    texts = ["red fox den", "blue whale", "red whale song", "a green tree"]
    index = BM25Index.build(texts, "en")
    documents, scores, spread = index.search_and_spread(["red fox", "whale", "nothing of it"], 3)
    full = np.concatenate([part.copy() for _, part in index.scored(["red fox", "whale", "nothing of it"], 3)])
    np.testing.assert_allclose(spread, full.std(axis=1), rtol=1e-6)
    assert spread[2] == 0 and (documents[2] == PADDING).all()
    np.testing.assert_array_equal(index.search(["red fox"], 3)[1], scores[:1])
