"""Prompts and inner products from mining to the search, against sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tests.mined import recipe_book
from tests.pipelines.tables import NO_MARKS, NO_PSEUDO, NONE_RELATED
from tests.pipelines.test_training import CORPUS, QRELS, QUERIES, WORDS, prepare_and_train, rows

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.texts import document_texts
from anmi.engine import IN_PROCESS
from anmi.pipelines.dense.nodes import build_dense_index, encode_collection, retrieve
from anmi.pipelines.evaluation.search import fit_search, make_parts, rank_by_parts, run_systems
from anmi.pipelines.params import BM25Params, DenseParams, EvaluationParams, SearchParams
from anmi.pipelines.training.params import TrainingParams
from anmi.retrieval.bm25 import BM25Index
from anmi.search import HybridSearch
from anmi.store import Store

ENCODED = ["query", "passage", ":", "find", *WORDS]
FOLDER = {"query": "query: ", "document": "passage: "}
EVALUATION = EvaluationParams(cutoffs=(10,), resamples=100)
OPTIONS = {
    "epochs": 2,
    "batch_size": 4,
    "alpha": 1.0,
    "precision": "float32",
    "tokens_per_pass": 40,
}
BOOK = recipe_book(
    {"mine": {"description": "A recipe.", "negatives": 1, "steps": {"top": {"by": "dense"}}}}
)


class Way(NamedTuple):
    """What a run left, and the similarity and prompts that it should have been made with."""

    similarity: str
    base: Path
    expected: dict[str, str]
    mined: dict[str, Any]
    trained: dict[str, Any]
    runs: pd.DataFrame
    candidates: Candidates
    search: HybridSearch


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "its own": ({}, FOLDER),
    "another": ({"prompt_query": "find: "}, FOLDER | {"query": "find: "}),
    "none": ({"prompt_query": "", "prompt_document": ""}, {"query": "", "document": ""}),
}


@pytest.fixture(
    scope="module",
    ids=": ".join,
    params=[
        ("static", "another"),
        ("static", "none"),
        ("two", "its own"),
        ("network, text alone pooled", "another"),
        ("static, dot", "its own"),
        ("network, dot", "its own"),
    ],
)
def way(
    request: Any, word_encoder: Any, network_encoder: Any, tmp_path_factory: pytest.TempPathFactory
) -> Way:
    """Mine, train and evaluate with a small real encoder."""
    kind, name = request.param
    folder = tmp_path_factory.mktemp("way")
    similarity = "dot" if kind.endswith("dot") else "cosine"
    settings: dict[str, Any] = {"prompts": FOLDER, "similarity_fn_name": similarity}
    if kind.startswith("network"):
        model = network_encoder(ENCODED, include_prompt=False, **settings)
        layer = model[0].model.embeddings.LayerNorm
    else:
        model = word_encoder(ENCODED, normalise=similarity == "cosine", **settings)
        layer = model[0].embedding
    if similarity == "dot":
        # Lengths about 10, as those of many published models, and unlike.
        layer.weight.data *= 8
    model.save(str(folder / "base"), create_model_card=False)
    prompts, expected = SETTINGS[name]
    (folder / "none").mkdir()
    options = OPTIONS | {"encoders": "two" if kind == "two" else "shared"}
    collection = {"corpus": CORPUS, "queries": QUERIES, "qrels": QRELS}
    shared: dict[str, Any] = {
        "encoder": str(folder / "base"),
        "corpus_encoder": folder / "none",
        "recipe": "mine",
        "recipes": BOOK,
        "dense": DenseParams(precision="float32", **prompts),
        "seed": 1,
    }
    with Store(folder / "store") as store:
        shared["store"] = store
        bm25 = BM25Index.build(document_texts(CORPUS), "en", "whitespace")
        mined, (candidates,) = mine(bm25, collection, shared)
        trained = prepare_and_train(
            folder / "data",
            training_rows=rows(8),
            **collection,
            **shared,
            pseudo_queries=NO_PSEUDO,
            related_documents=NONE_RELATED,
            knowledge=None,
            variants=None,
            training=TrainingParams(options=options),
            new_documents=pd.DataFrame({"document_id": []}),
            scored_candidates=pd.DataFrame(),
        )
        runs, search = evaluate(bm25, collection, shared, trained)
    search.save(folder / "search")
    search = HybridSearch.load(folder / "search")
    return Way(similarity, folder / "base", expected, mined, trained, runs, candidates, search)


def mine(
    bm25: BM25Index, collection: dict[str, Any], shared: dict[str, Any]
) -> tuple[dict[str, Any], CandidateShards]:
    dense = shared["dense"]
    names = ("corpus_encoder", "encoder", "recipe", "recipes", "store")
    mined = encode_collection(
        corpus=CORPUS,
        queries=QUERIES,
        params=dense,
        engine=IN_PROCESS,
        **{name: shared[name] for name in names},
    )
    vectors = mined["document_embeddings"]
    candidates = retrieve(
        bm25_index=bm25,
        dense_index=build_dense_index(CORPUS, vectors, mined["encoder_info"], dense),
        document_embeddings=vectors,
        query_embeddings=mined["query_embeddings"],
        **collection,
        marks=NO_MARKS,
        related_documents=NONE_RELATED,
        bm25=BM25Params(),
        engine=IN_PROCESS,
        **{name: shared[name] for name in ("recipe", "recipes", "dense", "seed")},
    )
    return mined, candidates


def evaluate(
    bm25: BM25Index, collection: dict[str, Any], shared: dict[str, Any], trained: dict[str, Any]
) -> tuple[pd.DataFrame, HybridSearch]:
    nothing: Any = None
    dev = collection | {"pseudo_queries": NO_PSEUDO, "seed": 1}
    dev["training_summary"] = trained["training_summary"]
    params = SearchParams(parts=["bm25", "trained"])
    names = ("encoder", "corpus_encoder", "dense", "store")
    parts = make_parts(
        **dev,
        trained_model=trained["trained_model"],
        bm25_index=bm25,
        search=params,
        **{name: shared[name] for name in names},
    )
    ranked = rank_by_parts(**dev, search_parts=parts, terms=nothing, params=EVALUATION)
    search = fit_search(
        **dev,
        search_parts=parts,
        dev_part_runs=ranked["dev_part_runs"],
        info={"collection": "mine", "language": "en"},
        recipe="mine",
        search=params,
        dense=shared["dense"],
    )
    runs = run_systems(
        part_runs=ranked["part_runs"],
        measured_search=search,
        **collection,
        pseudo_queries=NO_PSEUDO,
        given_runs=pd.DataFrame({"query_id": [], "system": []}),
        recipe="mine",
        params=EVALUATION,
    )
    return runs, search


Encode = Callable[[list[str], str], NDArray[Any]]


def plain(
    folder: Path,
    prompts: dict[str, str] | None = None,
    kept: tuple[str, ...] = ("query", "document"),
) -> Encode:
    """Encode as whoever loads the folder does.

    ``prompts`` are those that it is not known to have: of an encoder that is not trained, whose
    vectors of the roles ``kept`` the store keeps as float16.
    """
    model = SentenceTransformer(str(folder), device="cpu")

    def encode(texts: list[str], role: str) -> NDArray[Any]:
        encoding = model.encode_query if role == "query" else model.encode_document
        how: dict[str, Any] = {} if prompts is None else {"prompt": prompts[role]}
        how["normalize_embeddings"] = model.similarity_fn_name == "cosine"
        found: NDArray[Any] = encoding(texts, **how)
        is_kept = prompts is not None and role in kept
        return found.astype(np.float16).astype(np.float32) if is_kept else found

    return encode


def by_hand(encode: Encode, split: str) -> pd.DataFrame:
    """The run of a split's queries, ranked without any of our code."""
    asked = QUERIES[QUERIES.split == split]
    scores = encode(asked.text.tolist(), "query") @ encode(document_texts(CORPUS), "document").T
    found = [
        {"query_id": query, "document_id": f"d{place}", "score": row[place], "rank": rank}
        for query, row in zip(asked.query_id, scores, strict=True)
        for rank, place in enumerate(np.argsort(-row, kind="stable")[:10].tolist(), start=1)
    ]
    return pd.DataFrame(found)


def assert_equal(run: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert run.query_id.tolist() == expected.query_id.tolist()
    assert run.document_id.tolist() == expected.document_id.tolist()
    np.testing.assert_allclose(run.score, expected.score, rtol=1e-5, atol=1e-5)


def test_mining_encodes_with_them(way: Way) -> None:
    encode = plain(way.base, way.expected)
    train = QUERIES[QUERIES.split == "train"]
    np.testing.assert_allclose(
        way.mined["query_embeddings"], encode(train.text.tolist(), "query"), atol=1e-5
    )
    found = way.mined["document_embeddings"]
    np.testing.assert_allclose(found, encode(document_texts(CORPUS), "document"), atol=1e-5)
    assert way.mined["encoder_info"]["prompts"] == way.expected


def test_the_hardest_candidates_are_those_of_the_models_own_similarity(way: Way) -> None:
    expected = by_hand(plain(way.base, way.expected), "train")
    for query, block in expected.groupby("query_id"):
        row = way.candidates.query_ids.tolist().index(query)
        order = np.argsort(way.candidates.columns["dense_rank"][row])
        found = [f"d{place}" for place in way.candidates.documents[row, order]]
        others = [name for name in block.document_id if name != f"d{query[1:]}"]
        assert found[: len(others)] == others
    assert np.nanmax(way.candidates.columns["dense"]) < 2, "of the size of cosines"
    told = way.trained["training_summary"]["options"]["temperature"]
    wanted = {"kind": "fixed", "value": 1.0} if way.similarity == "dot" else "learnable"
    assert told == wanted or told["kind"] == wanted


def test_the_untrained_encoder_is_measured_with_them(way: Way) -> None:
    run = way.runs[way.runs.system == "zero_shot"]
    # A search encodes the queries that it is asked.
    assert_equal(run, by_hand(plain(way.base, way.expected, kept=("document",)), "test"))


def test_whoever_loads_the_trained_folder_gets_the_run_that_was_measured(way: Way) -> None:
    run = way.runs[way.runs.system == "mine"]
    expected = by_hand(plain(way.trained["trained_model"]), "test")
    assert_equal(run, expected)
    texts = QUERIES.text[QUERIES.split == "test"].tolist()
    served = [hit.document_id for hits in way.search.search(texts, 10, "dense") for hit in hits]
    assert served == expected.document_id.tolist()
    model = SentenceTransformer(str(way.trained["trained_model"]), device="cpu")
    assert (
        {role: model.prompts[role] for role in FOLDER}
        == way.expected
        == way.trained["training_summary"]["prompts"]
    )
