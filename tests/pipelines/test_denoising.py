"""Denoising on real texts: from candidates of both retrievers to one probability each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import logit
from tests.judging.conftest import Server, completion, save_classifier
from tests.mined import recipe_book
from tests.pipelines.tables import NO_MARKS, NONE_RELATED

from anmi.candidates import GRADE, SHIFT, Candidates, CandidateShards
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.texts import document_texts
from anmi.engine import IN_PROCESS
from anmi.judging.fused import transferred, with_network
from anmi.pipelines.bm25.nodes import build_bm25_index, cut_terms
from anmi.pipelines.denoising.nodes import judge_by_evidence, judge_candidates
from anmi.pipelines.dense.nodes import (
    build_dense_index,
    encode_collection,
    make_corpus_encoder,
    retrieve,
)
from anmi.pipelines.params import BM25Params, DenoisingParams, DenseParams, EloParams, SearchParams
from anmi.retrieval.encoders import Encoder, EncoderSettings, load_encoder
from anmi.retrieval.terms import Terms
from anmi.selection.recipe import with_probabilities
from anmi.store import Store

DENOISE: dict[str, Any] = {"denoise": {"threshold": 0.3}}
RECIPES: dict[str, Any] = {
    "clean": {"steps": DENOISE | {"top": {"by": "dense"}}},
    "rated": {"steps": DENOISE | {"top": {"by": "cross"}}},
    "elo": {"reads": ["elo"], "steps": DENOISE | {"top": {"by": "cross"}}},
    "blind": {"steps": {"top": {"by": "dense"}}},
}
BOOK = recipe_book({name: {"description": "A."} | recipe for name, recipe in RECIPES.items()})
EVIDENCE = {"coverage", "match", "likeness", "likeness_terms", "containment", "contained"}
INFO = {"collection": "", "language": "en"}


@dataclass(frozen=True)
class Mined:
    """What the stages before denoising made."""

    corpus: pd.DataFrame
    queries: pd.DataFrame
    knowledge: Knowledge
    candidates: CandidateShards
    terms: Terms
    embeddings: NDArray[np.float32]
    encoder_info: dict[str, Any]
    store: Store
    llm: dict[str, Any] = field(default_factory=dict)

    def judged(
        self,
        recipe: str,
        candidates: CandidateShards | None = None,
        parts: tuple[str, ...] = ("bm25",),
        minutes: float = 10,
        **params: Any,
    ) -> tuple[CandidateShards, dict[str, Any], dict[str, Any]]:
        """Run both nodes, and join what they add."""
        candidates = self.candidates if candidates is None else candidates
        shared: dict[str, Any] = {
            "candidates": candidates,
            "corpus": self.corpus,
            "queries": self.queries,
            "recipe": recipe,
            "recipes": BOOK,
            "params": DenoisingParams.model_validate(params),
            "seed": 1,
            "store": self.store,
            "engine": IN_PROCESS,
            "info": INFO,
        }
        evidence, fused = judge_by_evidence(
            **shared,
            terms=self.terms,
            document_embeddings=self.embeddings,
            encoder_info=self.encoder_info,
            knowledge=self.knowledge,
            search=SearchParams(parts=parts, minutes=minutes),
            dense=DenseParams(precision="float32"),
        )
        judgments, teacher, llm = judge_candidates(**shared, evidence=evidence, elo=EloParams())
        self.llm[recipe] = llm
        json.dumps([fused, teacher, llm], allow_nan=False)
        return candidates.joined(evidence, judgments), fused, teacher


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[Path], Path]) -> Mined:
    """Documentation of 90 functions; two of three queries know two positives."""
    from anmi.corpus.sources import load_collection

    collection = load_collection("api_docs")
    pairs = collection.equivalents[:90].drop_duplicates("query_id")
    queries = collection.queries.assign(split="train").set_index("query_id")
    queries = queries.loc[pairs.query_id].reset_index()
    labels = collection.qrels[collection.qrels.query_id.isin(queries.query_id)]
    labels = labels[["query_id", "document_id"]]
    names = pd.concat([pairs.document_id, labels.document_id])
    corpus = collection.corpus[collection.corpus.document_id.isin(names)].reset_index(drop=True)
    several = pairs[np.arange(len(pairs)) % 3 > 0]
    qrels = pd.concat([labels, several], ignore_index=True).assign(relevance=1)
    store = Store(new_store(tmp_path_factory.mktemp("store")))
    bm25 = BM25Params(depth=20, shard=25)
    dense = DenseParams(depth=20, precision="float32")
    terms = cut_terms(corpus, INFO, "clean", BOOK, bm25)
    encoder: dict[str, Any] = {"corpus": corpus, "encoder": "corpus", "params": dense}
    encoder["store"] = store
    corpus_encoder = make_corpus_encoder(new_documents=corpus[:0], seed=1, **encoder)
    chosen: dict[str, Any] = {"recipe": "clean", "recipes": BOOK, "engine": IN_PROCESS}
    encoded = encode_collection(queries=queries, corpus_encoder=corpus_encoder, **encoder, **chosen)
    vectors = encoded["document_embeddings"]
    candidates = retrieve(
        bm25_index=build_bm25_index(terms, "clean", BOOK, bm25),
        dense_index=build_dense_index(corpus, vectors, encoded["encoder_info"], dense),
        document_embeddings=vectors,
        query_embeddings=encoded["query_embeddings"],
        corpus=corpus,
        queries=queries,
        qrels=qrels,
        marks=NO_MARKS,
        related_documents=NONE_RELATED,
        bm25=bm25,
        dense=dense,
        seed=1,
        **chosen,
    )
    knowledge = Knowledge(collection.entities, collection.graph, collection.facts)
    shards = CandidateShards.of(list(candidates))
    return Mined(corpus, queries, knowledge, shards, terms, vectors, encoded["encoder_info"], store)


def probability(block: Candidates) -> NDArray[np.float32]:
    p_relevant = block.columns["p_relevant"]
    assert np.isnan(p_relevant[~block.filled]).all()
    return p_relevant[block.filled]


def test_every_candidate_gets_a_probability_from_shipped_coefficients(mined: Mined) -> None:
    shards, fused, teacher = mined.judged("clean", fused={"mode": "transfer", "prior": "shipped"})
    # Of the corpus's own encoder, wherever it lies.
    assert fused["models"] == [transferred("corpus").as_dict()]
    assert "p_relevant" not in shards.whole().columns, "it is not stored twice"
    block = shards.map(with_probabilities).whole()
    assert fused["mode"] == "transfer"
    assert teacher == {"judged_pairs": 0}
    assert {*EVIDENCE, "p_evidence", "p_relevant"} <= block.columns.keys()
    p_relevant = probability(block)
    assert ((p_relevant >= 0) & (p_relevant <= 1)).all()
    np.testing.assert_array_equal(block.columns["p_relevant"], block.columns["p_evidence"])
    assert not list((mined.store.path / "models").glob("cross_encoder*")), "none was trained"


def test_the_network_is_evidence_where_the_search_may_have_it(mined: Mined) -> None:
    transfer = {"mode": "transfer", "prior": "shipped"}
    parts = ("bm25", "network")
    shards, fused, _ = mined.judged("clean", parts=parts, minutes=0, fused=transfer)
    assert fused["models"] == [transferred("corpus").as_dict()], "there was no time to encode"
    assert "network" not in shards.whole().columns
    shards, fused, _ = mined.judged("clean", parts=parts, fused=transfer)
    assert fused["models"] == [transferred(with_network("corpus")).as_dict()]
    block = shards.whole()
    minilm = load_encoder("minilm", mined.store.path / "models", max_length=256)
    query = mined.queries.text[mined.queries.query_id == str(block.query_ids[0])].item()
    texts = [query, document_texts(mined.corpus)[block.documents[0, 0]]]
    first, second = Encoder.of(minilm, EncoderSettings(precision="float32")).encode(texts)
    assert block.columns["network"][0, 0] == pytest.approx(first @ second, abs=0.002)
    assert np.isfinite(block.columns["network"][block.filled]).all()


def test_a_collection_with_several_positives_refines_and_finds_the_hidden_ones(
    mined: Mined,
) -> None:
    shards, fused, _ = mined.judged("clean", fused={"least_queries": 30})
    block = shards.map(with_probabilities).whole()
    assert fused["mode"] == "hidden"
    assert len(fused["models"]) == 3
    assert fused["judges"]["fused"]["auc"] > 0.9
    assert np.isfinite(probability(block)).all()
    several = (block.positives >= 0).sum(axis=1) > 1
    assert several.any() and not several.all()
    p_heldout = block.positive_columns["p_heldout"]
    assert np.isfinite(p_heldout[several][:, :2]).all()
    assert np.isnan(p_heldout[~several]).all()
    # A positive is known again when hidden.
    assert np.nanmedian(p_heldout) > 10 * np.nanmedian(probability(block))


def test_a_second_judge_is_weighed_on_hidden_positives(
    mined: Mined, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ready = {"model": str(save_classifier(tmp_path / "judge")), "precision": "float32"}
    shards, fused, teacher = mined.judged(
        "rated", fused={"least_queries": 30}, cross_encoder=ready, depth=8
    )
    block = shards.whole()
    assert fused["mode"] == "hidden"
    assert teacher["stack"]["hidden"] >= 50
    assert 0 <= teacher["stack"]["weight"] <= 5
    weight = f"weight {teacher['stack']['weight']:.2f}"
    assert f"cross-encoder: {weight} beside the other evidence" in caplog.text
    assert np.isfinite(probability(block)).all()
    unseen = block.filled & np.isnan(block.columns["cross"])
    assert unseen.any()
    np.testing.assert_allclose(
        block.columns["p_relevant"][unseen], block.columns["p_evidence"][unseen], rtol=1e-4
    )


@pytest.mark.parametrize("recipe", ["clean", "rated"])
def test_a_language_model_reads_what_is_doubted(
    recipe: str, mined: Mined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def behave(number: int, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Call relevant what holds half of the query's words."""
        content = body["messages"][1]["content"].lower()
        query, document = (part.split() for part in content.split("\n</query>\n"))
        is_relevant = len({*query[1:]} & {*document}) >= 0.5 * len({*query[1:]})
        answer = {"grade": 3 * is_relevant, "snippet": " ".join(document[1:4])}
        return 200, {}, completion(json.dumps(answer))

    ready = {"model": str(save_classifier(tmp_path / "judge")), "precision": "float32"}
    with Server() as running:
        running.behave = behave
        Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"http://127.0.0.1:{running.server_address[1]}/v1"
        llm = {"base_url": url, "model": "m", "calls": 200}
        shards, _, _ = mined.judged(
            recipe, fused={"least_queries": 30}, llm=llm, cross_encoder=ready
        )
        summary = mined.llm[recipe]
        running.shutdown()
    unread = mined.judged(recipe, fused={"least_queries": 30}, cross_encoder=ready)[0]
    before = unread.map(with_probabilities).whole()
    block = shards.map(with_probabilities).whole()
    assert before.columns.keys() & {GRADE, SHIFT} == set() and summary["used"]
    is_called = block.columns[GRADE] >= 2
    is_refused = block.columns[GRADE] < 2
    assert is_called.any() and is_refused.any() and summary["calls"] <= 200
    # As log-odds: what was likely before cannot become likelier by much.
    first, second = (
        logit(np.clip(judged.columns["p_relevant"], 1e-6, 1 - 1e-6)) for judged in (before, block)
    )
    shift = second - first
    assert np.median(shift[is_called]) > np.median(shift[is_refused])


def test_nothing_depends_on_how_queries_are_cut_into_shards(mined: Mined) -> None:
    whole = mined.candidates.whole()
    one = mined.judged("clean", CandidateShards.of([whole]))[0].map(with_probabilities).whole()
    many = mined.judged("clean")[0].map(with_probabilities).whole()
    for name in {*EVIDENCE, "p_evidence", "p_relevant"}:
        np.testing.assert_array_equal(one.columns[name], many.columns[name], err_msg=name)
