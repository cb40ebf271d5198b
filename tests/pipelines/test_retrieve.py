"""The block of all sources: order, random documents, relations, and which queries are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.mined import recipe_book
from tests.pipelines.tables import NO_MARKS, corpus_of, frame, labels_of

from anmi.candidates import CandidateShards
from anmi.engine import IN_PROCESS
from anmi.pipelines.bm25.nodes import build_bm25_index, cut_terms
from anmi.pipelines.dense.nodes import build_dense_index, retrieve, retrieve_dev
from anmi.pipelines.params import BM25Params, DenseParams
from anmi.retrieval.pool import Positives
from anmi.selection.rows import training_rows

DOCUMENTS, QUERIES, DEPTH = 120, 9, 6
QUERY_IDS = [f"q{n}" for n in range(QUERIES)]
LABELS = labels_of(*(f"q{n} d{n}" for n in range(QUERIES)))
Merge = Callable[..., CandidateShards]
TOP = {"top": {"by": "fused"}}
BOOK = recipe_book(
    {
        "both": {"description": "Reads both.", "steps": TOP},
        "fitted": {"description": "Fits on dev.", "steps": {"mixture": {"per": "dev"}} | TOP},
    }
)


@pytest.fixture(scope="module")
def merge() -> Merge:
    """A function that mines a small random collection."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(30)])
    corpus = corpus_of([" ".join(rng.choice(words, 8)) for _ in range(DOCUMENTS)])
    texts = [" ".join(rng.choice(words, 3)) for _ in range(QUERIES)]
    queries = pd.DataFrame({"query_id": QUERY_IDS, "text": texts, "split": "train"})
    # The third query is d30, which has a copy, and the fourth has the text of d31.
    queries["same_as"] = ["", "", "d30", "d31", *[""] * (QUERIES - 4)]
    copies = [("d110", "d0", "copy"), ("d111", "d30", "copy")]
    vectors = rng.normal(size=(DOCUMENTS, 16)).astype(np.float32)
    query_vectors = rng.normal(size=(QUERIES, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query_vectors /= np.linalg.norm(query_vectors, axis=1, keepdims=True)

    def shards(
        random: int,
        shard: int = 4,
        pairs: Sequence[tuple[str, str, str]] = (),
        recipe: str = "both",
        splits: list[str] | None = None,
        labels: pd.DataFrame = LABELS,
        retrieved: Callable[..., CandidateShards] = retrieve,
    ) -> CandidateShards:
        bm25 = BM25Params(depth=DEPTH, shard=shard)
        dense = DenseParams(depth=DEPTH, random=random)
        terms = cut_terms(corpus, {"language": "en"}, recipe, BOOK, bm25)
        asking = queries if splits is None else queries.assign(split=splits)
        is_encoded = asking.split.isin(BOOK.get(recipe).splits)
        return retrieved(
            bm25_index=build_bm25_index(terms, recipe, BOOK, bm25),
            dense_index=build_dense_index(corpus, vectors, {"fingerprint": ""}, dense),
            document_embeddings=vectors,
            query_embeddings=query_vectors[is_encoded],
            corpus=corpus,
            queries=asking,
            qrels=labels,
            marks=NO_MARKS,
            related_documents=frame("document_id other_id kind", *copies, *pairs),
            recipe=recipe,
            recipes=BOOK,
            bm25=bm25,
            dense=dense,
            seed=1,
            engine=IN_PROCESS,
        )

    return shards


def test_a_query_with_many_positives_costs_what_one_with_eight_does(merge: Merge) -> None:
    many = [f"d{place}" for place in range(100)]
    labels = pd.concat([LABELS[1:], labels_of(*(f"q0 {name}" for name in many))])
    blocks = [*merge(DOCUMENTS, shard=6, labels=labels)]
    assert [len(block) for block in blocks] == [3, 6], "who has many shares a shard with few"
    assert blocks[0].query_columns["best_bm25"][0] >= blocks[0].positive_columns["bm25"][0].max()
    rows = training_rows(
        CandidateShards.of(blocks),
        [f"d{n}" for n in range(DOCUMENTS)],
        [""] * DOCUMENTS,
        dict.fromkeys(QUERY_IDS, ""),
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
    related = np.nan_to_num(block.columns["related"])
    marked = {
        (row, int(block.documents[row, column])): related[row, column]
        for row, column in np.argwhere(related).tolist()
    }
    # d110 is a copy of d0, so what is near to it is near to d0.
    assert marked == {(1, 50): 1, (1, 60): 2, (0, 70): 1}
    assert np.isnan(block.columns["related"][~block.filled]).all()


def test_dev_queries_are_searched_apart_where_a_step_is_fitted_on_them(merge: Merge) -> None:
    splits = ["train", "dev", "test", *["train", "dev"] * 3]
    on_dev: dict[str, Any] = {"splits": splits, "retrieved": retrieve_dev}
    assert not [*merge(5, **on_dev)]
    everything = merge(5, recipe="fitted").whole()
    dev = merge(5, recipe="fitted", **on_dev).whole()
    rows = [row for row, split in enumerate(splits) if split == "dev"]
    assert dev.query_ids.tolist() == [f"q{row}" for row in rows]
    expected = everything.documents[rows][:, : dev.documents.shape[1]]
    np.testing.assert_array_equal(dev.documents, expected)
    train = merge(5, recipe="fitted", splits=splits).whole()
    names = [f"q{row}" for row, split in enumerate(splits) if split == "train"]
    assert train.query_ids.tolist() == names
