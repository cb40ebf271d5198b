"""When training is released again, and of what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.mined import recipe_book
from tests.pipelines.tables import NONE_RELATED, frame, labels_of

from anmi.candidates import Candidates, CandidateShards
from anmi.pipelines.final.nodes import choose_to_train_again, labelled_dev, release_held_out
from anmi.pipelines.params import DenseParams, EvaluationParams
from anmi.pipelines.training.params import TrainingParams
from anmi.retrieval.bm25 import BM25Index

WORDS = ["rain", "snow", "wind", "hail", "fog", "frost"]
CORPUS = pd.DataFrame({"document_id": WORDS, "title": "", "text": WORDS, "metadata": "{}"})
QUERIES = frame(
    "query_id text split",
    ("train", "rain", "train"),
    ("dev", "snow", "dev"),
    ("twin", "hail", "dev"),
    ("unlabelled", "fog", "dev"),
    ("irrelevant", "frost", "dev"),
    ("test", "Hail?", "test"),
)
QRELS = labels_of(
    "train rain", "dev snow", "dev wind", "twin hail", "irrelevant frost", "test hail"
)
QRELS.loc[4, "relevance"] = 0
NEW = frame("document_id split", ("wind", "dev"), ("fog", "test"))
STEPS = {"description": "x", "negatives": 1, "steps": {"random": {}}}
BOOK = recipe_book(
    {
        "plain": STEPS,
        "judged": STEPS | {"reads": ["p_relevant"], "training": {"loss": "distillation"}},
    }
)


def choose(**changes: Any) -> dict[str, Any]:
    summary = {"seconds": 300.0, "options": {"retriever": "dense"}, "alpha": 0.5}
    arguments: dict[str, Any] = {
        "final": "auto",
        "training_summary": summary,
        "metrics": pd.DataFrame({"value": [0.5]}),
        "corpus": CORPUS,
        "queries": QUERIES,
        "qrels": QRELS,
        "new_documents": NEW,
        "recipe": "plain",
        "recipes": BOOK,
        "training": TrainingParams(),
        "evaluation": EvaluationParams(),
        "seed": 1,
    }
    return choose_to_train_again(**arguments | changes)


SPARSE: dict[str, Any] = {"seconds": 300.0, "options": {"retriever": "sparse"}}
LONG = {"seconds": 400.0, "options": {"retriever": "dense"}, "companion": SPARSE}
BY_DEV = {"sources": "mixed", "curriculum": {"triggered": {"measure": "validation"}}}
COMPANION = {"companion": {"retriever": "sparse", "curriculum": {"bandit": {"window": "rank"}}}}
NO_LABELS = {"labels": 0.0, "pseudo_queries": {"kinds": ["title"]}}


@pytest.mark.parametrize(
    ("changes", "again", "words"),
    [
        (
            {},
            True,
            'on 2 more documents and 1 more labelled queries: its figures are called "final"',
        ),
        ({"final": "never"}, False, "final is never"),
        ({"training_summary": LONG}, False, "took 12 minutes, and final=auto"),
        ({"training_summary": LONG, "final": "always"}, True, "trained once more"),
        ({"recipe": "judged"}, True, "2 more documents and 0 more labelled queries"),
        ({"queries": QUERIES[:1], "new_documents": NEW[:0]}, False, "nothing was held out"),
        ({"evaluation": EvaluationParams(split="dev")}, True, "no query is left that measures it"),
        ({"queries": QUERIES[:-1]}, True, "no query is left that measures it"),
        ({"training": TrainingParams(options=NO_LABELS)}, True, "and 0 more labelled"),
        ({"training": TrainingParams(options=BY_DEV)}, False, "curriculum goes by dev queries"),
        ({"training": TrainingParams(options=COMPANION)}, False, "curriculum goes by dev queries"),
    ],
)
def test_training_is_released_again_where_it_is_short_and_something_was_held_out(
    changes: dict[str, Any], again: bool, words: str
) -> None:
    choice = choose(**changes)
    assert choice["again"] is again
    assert words in choice["sentence"]
    assert choice["measured"] is ('called "final"' in choice["sentence"])


def test_what_an_earlier_training_chose_is_known_by_kind_of_retriever() -> None:
    first = {"seconds": 1.0, "options": {"retriever": "dense"}, "alpha": 1.0}
    summary = first | {"companion": SPARSE | {"alpha": 0.25}}
    assert choose(training_summary=summary)["alphas"] == {"dense": 1.0, "sparse": 0.25}
    assert choose(training_summary=LONG, final="always")["alphas"] == {}


def test_a_dev_query_is_released_that_has_a_label_and_no_test_query_s_text() -> None:
    assert labelled_dev(CORPUS, QUERIES, QRELS).query_id.tolist() == ["dev"]


def release(selection: CandidateShards) -> dict[str, Any]:
    pseudo_queries = pd.DataFrame({"document_id": ["rain", "wind"], "split": ["train", "dev"]})
    return release_held_out(
        choice=choose(),
        selection=selection,
        corpus=CORPUS,
        queries=QUERIES,
        qrels=QRELS,
        new_documents=NEW,
        pseudo_queries=pseudo_queries,
        related_documents=NONE_RELATED,
        bm25_index=BM25Index.build(WORDS, "en", "whitespace"),
        dense=DenseParams(),
        seed=1,
    )


def mined() -> Candidates:
    """A training query with a negative, measured by one judge."""
    return Candidates(
        query_ids=np.array(["train"]),
        positives=np.array([[0]], np.int32),
        documents=np.array([[5, 3]], np.int32),
        source=np.array([[1, 1]], np.uint8),
        columns={
            "p_relevant": np.array([[0.1, 0.2]], np.float32),
            "choice": np.array([[1.0, np.nan]], np.float32),
        },
        positive_columns={"p_relevant": np.array([[0.9]], np.float32)},
        verdict=np.array([[1, 0]], np.int16),
        legend=("open", "negative"),
    )


def test_released_queries_get_a_row_for_each_positive_without_negatives() -> None:
    released = release(CandidateShards.of([mined()]))
    rows = released["training_rows"].to_pandas()
    assert rows.query_id.tolist() == ["train", "dev", "dev"]
    pairs = set(zip(rows.query_id, rows.positive_id, strict=True))
    assert pairs == {("train", "rain"), ("dev", "snow"), ("dev", "wind")}
    assert [list(names) for names in rows.negative_ids] == [["frost"], [], []]
    assert rows.split.tolist() == ["train"] * 3
    assert rows.positive_p_relevant.isna().tolist() == [False, True, True]
    splits = released["queries"].set_index("query_id").split.to_dict()
    assert splits == {"train": "train", "test": "test", "dev": "train"}
    assert released["pseudo_queries"].split.tolist() == ["train", "train"]
    assert released["new_documents"].empty


def test_labels_may_be_in_dev_alone() -> None:
    rows = release(CandidateShards.of([]))["training_rows"].to_pandas()
    assert rows.query_id.tolist() == ["dev", "dev"]
    assert {"negative_bm25", "positive_elo"} <= set(rows.columns)
