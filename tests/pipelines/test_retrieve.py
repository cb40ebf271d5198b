"""The block of all sources: order, random documents, relations, and which queries are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from anmi.candidates import CandidateShards
from anmi.pipelines.bm25.nodes import build_bm25_index, cut_terms
from anmi.pipelines.dense.nodes import build_dense_index, retrieve, retrieve_dev
from anmi.pipelines.params import BM25Params, DenseParams
from anmi.retrieval.pool import Positives
from anmi.selection.recipe import recipe_book
from anmi.selection.rows import training_rows

DOCUMENTS, QUERIES, DEPTH = 120, 9, 6
Merge = Callable[..., CandidateShards]
BOOK = recipe_book(
    {
        "both": {"description": "Reads both.", "steps": {"top": {"by": "fused"}}},
        "fitted": {
            "description": "Fits on dev.",
            "steps": {"mixture": {"per": "dev"}, "top": {"by": "fused"}},
        },
    }
)


@pytest.fixture(scope="module")
def merge() -> Merge:
    """A function that mines a small random collection; words of a document are those of its number."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(30)])
    corpus = pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in range(DOCUMENTS)],
            "title": "",
            "text": [" ".join(rng.choice(words, 8)) for _ in range(DOCUMENTS)],
        }
    )
    queries = pd.DataFrame(
        {
            "query_id": [f"q{i}" for i in range(QUERIES)],
            "text": [" ".join(rng.choice(words, 3)) for _ in range(QUERIES)],
            "split": "train",
        }
    )
    qrels = pd.DataFrame(
        {"query_id": queries.query_id, "document_id": corpus.document_id[:QUERIES], "relevance": 1}
    )
    # The third query is d30, which has a copy, and the fourth has the text of d31.
    queries["same_as"] = ["", "", "d30", "d31", *[""] * (QUERIES - 4)]
    copies = [("d110", "d0", "copy"), ("d111", "d30", "copy")]
    vectors, asked = (
        rng.normal(size=(count, 16)).astype(np.float32) for count in (DOCUMENTS, QUERIES)
    )
    vectors, asked = (
        each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, asked)
    )

    def shards(
        random: int,
        shard: int = 4,
        pairs: list[tuple[str, str, str]] | None = None,
        recipe: str = "both",
        splits: list[str] | None = None,
        labels: pd.DataFrame = qrels,
        retrieved: Callable[..., CandidateShards] = retrieve,
    ) -> CandidateShards:
        table = pd.DataFrame([*copies, *(pairs or [])], columns=["document_id", "other_id", "kind"])
        bm25, params = BM25Params(depth=DEPTH, shard=shard), DenseParams(depth=DEPTH, random=random)
        terms = cut_terms(corpus, {"language": "en"}, recipe, BOOK, bm25)
        told = queries if splits is None else queries.assign(split=splits)
        there = told.query_id[told.split.isin(BOOK.get(recipe).splits)]
        return retrieved(
            bm25_index=build_bm25_index(terms, recipe, BOOK, bm25),
            dense_index=build_dense_index(corpus, vectors, {"fingerprint": ""}, params),
            document_embeddings=vectors,
            query_embeddings=np.stack([asked[int(query[1:])] for query in there]),
            corpus=corpus,
            queries=told,
            qrels=labels,
            related_documents=table,
            recipe=recipe,
            recipes=BOOK,
            bm25=bm25,
            dense=params,
            seed=1,
        )

    return shards


def test_a_query_with_many_positives_costs_what_one_with_eight_does(merge: Merge) -> None:
    many = [f"d{place}" for place in range(100)]
    labels = pd.DataFrame(
        {"query_id": [f"q{n}" for n in range(QUERIES)], "document_id": [f"d{n}" for n in range(9)]}
    )
    labels = pd.concat([labels[1:], pd.DataFrame({"query_id": "q0", "document_id": many})]).assign(
        relevance=1
    )
    blocks = [*merge(DOCUMENTS, shard=6, labels=labels)]
    assert [len(block) for block in blocks] == [3, 6], "who has many shares a shard with few"
    assert blocks[0].query_columns["best_bm25"][0] >= blocks[0].positive_columns["bm25"][0].max()
    rows = training_rows(
        CandidateShards.of(blocks),
        [f"d{n}" for n in range(DOCUMENTS)],
        [""] * DOCUMENTS,
        {f"q{n}": "" for n in range(QUERIES)},
        labels=Positives(labels, {f"d{n}": n for n in range(DOCUMENTS)}),
    ).to_pandas()
    assert rows.query_id.value_counts()["q0"] == 8 and len(rows) == 8 + QUERIES - 1
    assert set(rows.positive_ids[0]) == set(many), "none of which is ever a negative"


def test_a_query_that_is_a_document_never_meets_itself(merge: Merge) -> None:
    # The whole corpus is retrieved and drawn.
    block = merge(DOCUMENTS).whole()
    assert not {30, 111} & set(block.documents[2].tolist())
    assert 31 not in block.documents[3]
    others = block.documents[4].tolist()
    assert {30, 31} <= set(others)
    assert 111 not in others, "of a text that stands twice, the first document is the candidate"


def test_the_block_does_not_depend_on_the_shards(merge: Merge) -> None:
    one, many = merge(20, shard=1).whole(), merge(20, shard=100).whole()
    np.testing.assert_array_equal(one.documents, many.documents)
    np.testing.assert_array_equal(one.source, many.source)


def test_near_duplicates_and_siblings_of_a_positive_are_marked(merge: Merge) -> None:
    pairs = [("d1", "d50", "near"), ("d1", "d60", "sibling"), ("d70", "d110", "near")]
    block = merge(DOCUMENTS, pairs=pairs).whole()
    found = {
        (int(q), int(block.documents[q, m])): int(block.columns["related"][q, m])
        for q, m in zip(*np.nonzero(np.nan_to_num(block.columns["related"])), strict=True)
    }
    # d110 is a copy of d0, so what is near to it is near to d0.
    assert found == {(1, 50): 1, (1, 60): 2, (0, 70): 1}
    assert np.isnan(block.columns["related"][~block.filled]).all()


def test_dev_queries_are_searched_apart_where_a_step_is_fitted_on_them(merge: Merge) -> None:
    splits = ["train", "dev", "test", *["train", "dev"] * 3]
    asked: dict[str, Any] = {"splits": splits, "retrieved": retrieve_dev}
    assert not [*merge(5, **asked)]
    everything = merge(5, recipe="fitted", splits=["train"] * QUERIES).whole()
    found = merge(5, recipe="fitted", **asked).whole()
    rows = [row for row, split in enumerate(splits) if split == "dev"]
    assert found.query_ids.tolist() == [f"q{row}" for row in rows]
    np.testing.assert_array_equal(
        found.documents, everything.documents[rows][:, : found.documents.shape[1]]
    )
    train = merge(5, recipe="fitted", splits=splits).whole()
    assert train.query_ids.tolist() == [
        f"q{row}" for row, split in enumerate(splits) if split == "train"
    ]
