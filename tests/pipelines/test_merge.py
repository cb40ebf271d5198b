"""The merged block: sources, order, random documents and kin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from anmi.candidates import SOURCES, Candidates
from anmi.pipelines.bm25.nodes import build_bm25_index, search_bm25
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.dense.nodes import build_dense_index, merge_candidates
from anmi.pipelines.dense.params import DenseParams

DOCUMENTS, QUERIES, DEPTH = 120, 9, 6
Merge = Callable[..., Candidates]


@pytest.fixture(scope="module")
def merge() -> Merge:
    """A function that mines a small random collection; words of a document are those of its number."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(30)])
    corpus = pd.DataFrame({
        "document_id": [f"d{i}" for i in range(DOCUMENTS)],
        "title": "",
        "text": [" ".join(rng.choice(words, 8)) for _ in range(DOCUMENTS)],
    })  # fmt: skip
    queries = pd.DataFrame({
        "query_id": [f"q{i}" for i in range(QUERIES)],
        "text": [" ".join(rng.choice(words, 3)) for _ in range(QUERIES)],
        "split": "train",
    })  # fmt: skip
    qrels = pd.DataFrame({"query_id": queries.query_id, "document_id": corpus.document_id[:QUERIES], "relevance": 1})
    # The third query is d30, which has a copy, and the fourth has the text of d31.
    queries["same_as"] = ["", "", "d30", "d31", *[""] * (QUERIES - 4)]
    duplicates = pd.DataFrame({"document_id": ["d110", "d111"], "duplicate_of": ["d0", "d30"]})
    vectors, asked = (rng.normal(size=(count, 16)).astype(np.float32) for count in (DOCUMENTS, QUERIES))
    vectors, asked = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, asked))

    def merged(random: int, shard: int = 4, documents: int = DOCUMENTS, kin: pd.DataFrame | None = None) -> Candidates:
        part = corpus[:documents]
        copies = duplicates[duplicates.document_id.isin(part.document_id)]
        bm25 = BM25Params(depth=DEPTH, shard=shard)
        params = DenseParams(depth=DEPTH, random=random)
        index = build_bm25_index(part, {"language": "en"}, bm25)
        found = search_bm25(index, part, queries, qrels, copies, bm25)
        dense = build_dense_index(part, vectors[:documents], {"fingerprint": ""}, params)
        pairs = pd.DataFrame(columns=["document_id", "other_id", "kind"]) if kin is None else kin
        return merge_candidates(
            found, index, dense, vectors[:documents], asked, part, queries, copies, pairs, params, 1
        ).whole()

    return merged


def test_random_documents_come_last_and_leave_the_retrieved_as_they_are(merge: Merge) -> None:
    without, block = merge(0), merge(20)
    drawn, retrieved = SOURCES["random"], SOURCES["bm25"] | SOURCES["dense"]
    assert (((block.source & drawn) > 0).sum(axis=1) == 20).all()
    only = block.source == drawn
    assert (np.diff(only.astype(int), axis=1)[block.filled[:, 1:]] >= 0).all(), "none before a retrieved one"
    for row in range(QUERIES):
        first = block.filled[row] & ~only[row]
        assert block.documents[row, first].tolist() == without.documents[row, without.filled[row]].tolist()
        assert (block.source[row, first] & retrieved).tolist() == without.source[row, without.filled[row]].tolist()
        assert (np.diff(block.columns["fused"][row, first]) <= 0).all()
    both = (block.source > drawn)[block.filled]
    assert both.any(), "no document was found by a ranking and by chance"
    for column in ("bm25", "bm25_rank", "dense", "dense_rank"):
        assert np.isfinite(block.columns[column][block.filled]).all(), column


def test_a_positive_and_its_duplicate_are_never_drawn(merge: Merge) -> None:
    block = merge(DOCUMENTS)
    barred = np.array([1, 0, 2, 1, *[0] * (QUERIES - 4)])
    assert (block.filled.sum(axis=1) == DOCUMENTS - 1 - barred).all()
    assert 110 not in block.documents[0] and 110 in block.documents[1]
    assert not (block.documents == block.positives[:, :1]).any()


def test_a_query_that_is_a_document_never_meets_itself(merge: Merge) -> None:
    # The whole corpus is retrieved and drawn.
    block = merge(DOCUMENTS)
    assert not {30, 111} & set(block.documents[2].tolist())
    assert 31 not in block.documents[3]
    assert {30, 31, 111} <= set(block.documents[4].tolist())


def test_the_block_does_not_depend_on_the_shards(merge: Merge) -> None:
    one, many = merge(20, shard=1), merge(20, shard=100)
    np.testing.assert_array_equal(one.documents, many.documents)
    np.testing.assert_array_equal(one.source, many.source)


def test_a_corpus_smaller_than_the_draw_is_drawn_whole(merge: Merge) -> None:
    block = merge(32, documents=15)
    assert (block.filled.sum(axis=1) == 14).all()


def test_kin_of_a_positive_are_marked(merge: Merge) -> None:
    pairs = pd.DataFrame(
        [("d1", "d50", "near"), ("d1", "d60", "sibling"), ("d70", "d110", "near")],
        columns=["document_id", "other_id", "kind"],
    )
    block = merge(DOCUMENTS, kin=pairs)
    found = {
        (int(q), int(block.documents[q, m])): int(block.columns["kin"][q, m])
        for q, m in zip(*np.nonzero(np.nan_to_num(block.columns["kin"])), strict=True)
    }
    # d110 is a copy of d0, so what is kin to it is kin to d0.
    assert found == {(1, 50): 1, (1, 60): 2, (0, 70): 1}
    assert np.isnan(block.columns["kin"][~block.filled]).all()
