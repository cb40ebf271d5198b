"""The nodes of training: which labels and documents are used, and what stands in for labels."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.mined import recipe_book

from anmi.adaptation.pseudo_tests import labels_used
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.pipelines.params import DenseParams
from anmi.pipelines.training.data import TrainingData
from anmi.pipelines.training.nodes import prepare_training_data, train_retriever
from anmi.pipelines.training.params import TrainingParams
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.index import term_table
from anmi.retrieval.sparse.model import inference_free
from anmi.store import Store

COUNT = 38
WORDS = [f"w{i}" for i in range(3 * COUNT)]
PSEUDO = {"kinds": ["title", "cloze"], "batch_size": 4}
ALONE = {"description": "Labels alone.", "negatives": 2, "steps": {"top": {"by": "dense"}}}
BOOK = recipe_book({"mine": ALONE | {"training": {"pseudo_queries": PSEUDO}}, "alone": ALONE})
IDS = [f"d{i}" for i in range(COUNT)]
CORPUS = pd.DataFrame(
    [(f"d{i}", f"w{i}", f"w{i + COUNT} w{i + 2 * COUNT}", "{}") for i in range(COUNT)],
    columns=["document_id", "title", "text", "metadata"],
)
QUERIES = pd.DataFrame(
    {
        "query_id": [f"q{i}" for i in range(COUNT)],
        "text": [f"w{i} w{i + COUNT}" for i in range(COUNT)],
        "split": ["train"] * 12 + ["dev"] * 20 + ["test"] * 6,
    }
)
QRELS = pd.DataFrame({"query_id": QUERIES.query_id, "document_id": IDS, "relevance": 1})
NEW = pd.DataFrame(
    {"document_id": ["d20", "d21", "d34", "d35"], "split": ["dev", "dev", "test", "test"]}
)


def pseudo_queries() -> pd.DataFrame:
    """Titles of all documents, of which four are held out."""
    split = CORPUS.document_id.map(NEW.set_index("document_id").split).fillna("train").tolist()
    table = CORPUS.rename(columns={"title": "text", "text": "positive_text"})
    return table.drop(columns="metadata").assign(
        query_id="title:0:" + table.document_id, kind="title", weight=1.0, split=split
    )


def rows(count: int = 12) -> pd.DataFrame:
    """One row per training query; its negatives are the next document and one that is held out."""
    texts = (CORPUS.title + " " + CORPUS.text).tolist()
    following = [(i + 1) % COUNT for i in range(count)]
    return pd.DataFrame(
        {
            "query_id": QUERIES.query_id[:count],
            "query": QUERIES.text[:count],
            "positive_id": IDS[:count],
            "positive": texts[:count],
            "negative_ids": [[f"d{i}", "d21"] for i in following],
            "negatives": [[texts[i], texts[21]] for i in following],
            "weights": [[1.0, 0.5]] * count,
            "negative_dense": [[0.3, 0.2]] * count,
            "positive_dense": 0.9,
            "query_weight": 1.0,
            "positive_ids": [[name] for name in IDS[:count]],
        }
    )


def prepare_and_train(folder: Path, **inputs: Any) -> dict[str, Any]:
    """Train on what was prepared, saved and loaded."""

    def read_by(function: Any) -> dict[str, Any]:
        return {
            name: inputs[name] for name in inspect.signature(function).parameters.keys() & inputs
        }

    folder.mkdir(exist_ok=True)
    prepare_training_data(**read_by(prepare_training_data)).save(folder)
    inputs["training_data"] = TrainingData.load(folder)
    return train_retriever(**read_by(train_retriever))


@pytest.fixture
def train(word_encoder: Any, tmp_path: Path) -> Any:
    word_encoder(WORDS).save(str(tmp_path / "base"), create_model_card=False)

    def run(**changes: Any) -> dict[str, Any]:
        options = {"epochs": 2, "batch_size": 4, **changes.pop("options", {})}
        inputs = {
            "training_rows": rows(),
            "corpus": CORPUS,
            "queries": QUERIES,
            "qrels": QRELS,
            "pseudo_queries": pseudo_queries(),
            "new_documents": NEW,
            "related_documents": pd.DataFrame(
                columns=["document_id", "other_id", "kind"], dtype=str
            ),
            "scored_candidates": pd.DataFrame(),
            "knowledge": None,
            "variants": pd.DataFrame(),
            "corpus_encoder": tmp_path,
            "encoder": str(tmp_path / "base"),
            "recipe": "mine",
            "recipes": BOOK,
            "training": TrainingParams(options=options),
            "dense": DenseParams(precision="float32"),
            "seed": 1,
        }
        with Store(tmp_path / "store") as store:
            return prepare_and_train(tmp_path / "data", **inputs | changes, store=store)

    return run


def test_a_kind_that_the_documents_do_not_offer_is_left_out_and_named_if_it_was_asked_for(
    train: Any, caplog: Any
) -> None:
    summary = train()["training_summary"]
    assert "no pseudo-query of the kind" not in caplog.text
    train(options={"pseudo_queries": {"kinds": ["title", "cloze"]}})
    assert (summary["pseudo_queries"], summary["rows"], summary["adapted"]) == (34, 12, True)
    assert "no pseudo-query of the kind cloze" in caplog.text


def test_without_labels_pseudo_queries_of_new_documents_are_dev(train: Any) -> None:
    tests = QUERIES[QUERIES.split == "test"]
    made = train(
        training_rows=rows()[:0], queries=tests, qrels=QRELS[QRELS.query_id.isin(tests.query_id)]
    )
    assert (made["training_summary"]["rows"], made["training_summary"]["dev_queries"]) == (
        0,
        "pseudo_queries",
    )
    assert {row["queries"] for row in made["training_summary"]["alphas"]} == {"pseudo"}
    assert made["training_summary"]["alpha"] > 0


def test_pseudo_queries_join_fewer_than_twenty_dev_queries(train: Any) -> None:
    made = train(qrels=QRELS[~QRELS.query_id.isin(["q30", "q31"])])
    assert made["training_summary"]["dev_queries"] == "pseudo_queries"
    counts = {row["queries"]: row["count"] for row in made["training_summary"]["alphas"]}
    assert counts == {"unlabelled": 16, "new": 2}, "what a label names keeps its text"


def test_a_recipe_of_labels_alone_needs_some(train: Any) -> None:
    with pytest.raises(AnmiError, match="nothing to train on: no training query has a label"):
        train(recipe="alone", training_rows=rows()[:0])


@pytest.mark.parametrize(
    ("count", "said"), [(0, "no pseudo-query to train on"), (1, "few, or so alike")]
)
def test_what_is_too_little_to_learn_from_leaves_the_encoder_as_it_was(
    train: Any, tmp_path: Path, caplog: Any, count: int, said: str
) -> None:
    made = train(training_rows=rows()[:0], pseudo_queries=pseudo_queries()[:count])
    before, after = (
        folder / "model.safetensors" for folder in (tmp_path / "base", made["trained_model"])
    )
    assert before.read_bytes() == after.read_bytes() and said in caplog.text
    assert said in made["training_summary"]["unchanged"]
    assert made["training_summary"]["adapted"] == (count > 0)


def test_a_companion_is_what_a_run_of_its_own_would_train(train: Any) -> None:
    made = train(options={"companion": {"retriever": "sparse", "epochs": 1}})
    alone = {
        kind: train(options=options)
        for kind, options in (("dense", {}), ("sparse", {"retriever": "sparse", "epochs": 1}))
    }
    folders = {"dense": made["trained_model"], "sparse": made["trained_model"] / "companion"}
    for kind, folder in folders.items():
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.safetensors")}
        own = {name for name in files if not name.startswith("companion/")}
        assert own == {
            path.relative_to(alone[kind]["trained_model"]).as_posix()
            for path in alone[kind]["trained_model"].rglob("*.safetensors")
        }
        for name in own:
            assert (folder / name).read_bytes() == (
                alone[kind]["trained_model"] / name
            ).read_bytes()
    summary, expected = made["training_summary"], alone["sparse"]["training_summary"]
    assert summary["companion"]["options"]["retriever"] == "sparse"
    assert summary["companion"]["alphas"] == expected["alphas"]
    assert summary["alphas"] == alone["dense"]["training_summary"]["alphas"]


def test_a_share_of_the_way_that_was_chosen_before_is_taken(train: Any, tmp_path: Path) -> None:
    names = ("start", "half", "end")
    folders = [tmp_path / "base"]
    folders += [train(alphas={"dense": alpha})["trained_model"] for alpha in (0.5, 1.0)]
    tensors = {
        name: load_file(folder / "model.safetensors")["embedding.weight"]
        for name, folder in zip(names, folders, strict=True)
    }
    assert not torch.equal(tensors["start"], tensors["end"])
    torch.testing.assert_close(tensors["half"].norm(dim=1), tensors["end"].norm(dim=1))
    nearness = torch.nn.functional.cosine_similarity(tensors["half"], tensors["end"])
    assert nearness.min() > 0.5 and nearness.min() < 0.9999


@pytest.mark.parametrize("learned", [True, False])
def test_weights_of_queries_are_learned_or_stay_their_idf(train: Any, learned: bool) -> None:
    made = train(
        options={"alpha": 1.0, "retriever": "sparse", "sparsity": {"learned_queries": learned}}
    )
    table = term_table(made["trained_model"])
    old = CORPUS[~CORPUS.document_id.isin(NEW.document_id)]
    start = inference_free(
        load_encoder(made["training_summary"]["encoder"], Path()), document_texts(old)
    )
    before = start[0].sub_modules["query"][0].weight.detach().numpy()
    assert np.array_equal(table.weights, before) is not learned


def test_a_larger_share_of_the_labels_holds_every_smaller_one_and_test_queries_stay() -> None:
    many = QUERIES.loc[np.repeat(QUERIES.index, 40)].reset_index(drop=True)
    many = many.assign(
        query_id=[f"q{i}" for i in range(len(many))], text=[f"text {i}" for i in range(len(many))]
    )
    some = pd.DataFrame({"query_id": many.query_id})
    used = {share: labels_used(some, many, share, 1) for share in (0.0, 0.1, 0.5, 1.0)}
    assert [round(len(found[0]) / len(many), 1) for found in used.values()] == [0.2, 0.2, 0.6, 1.0]
    assert set(used[0.0][1].split) == {"test"}
    assert set(used[0.1][0].query_id) < set(used[0.5][0].query_id)
