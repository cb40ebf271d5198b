"""These nodes judge how likely each candidate is relevant."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.candidates import GRADE, MARKED, CandidateShards, ColumnShards
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.texts import document_texts
from anmi.engine import EngineParams, add_columns, map_shards
from anmi.judging.evidence import ByNetwork, Material, facts_of
from anmi.judging.fused import shipped, with_network
from anmi.judging.fusing import FusedJudge
from anmi.pipelines.evaluation.search import network_settings
from anmi.pipelines.params import DenoisingParams, DenseParams, EloParams, SearchParams
from anmi.ragged import Float32s
from anmi.retrieval import exact
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.terms import Terms
from anmi.selection.recipe import OF_CROSS_ENCODER, OF_ELO, Recipe, RecipeBook
from anmi.store import Store

log = logging.getLogger(__name__)
# Where a recipe finds its thresholds only when it selects.
_DOUBTED: Final = 0.1


def judge_by_evidence(
    *,
    candidates: CandidateShards,
    terms: Terms,
    document_embeddings: Float32s,
    encoder_info: dict[str, Any],
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    knowledge: Knowledge,
    recipe: str,
    recipes: RecipeBook,
    params: DenoisingParams,
    search: SearchParams,
    dense: DenseParams,
    seed: int,
    store: Store,
    engine: EngineParams,
    info: Mapping[str, Any],
) -> tuple[ColumnShards, dict[str, Any]]:
    """Gather the evidence and fuse it into ``p_evidence``, if the recipe reads any judgment.

    The packaged network's evidence is among it where coefficients with it are shipped for the
    encoder and the search may have the network.
    """
    chosen = recipes.get(recipe)
    if not chosen.judged:
        return ColumnShards(), {"mode": "none"}
    params = chosen.settings("denoising", params)
    texts = dict(zip(queries.query_id, queries.text, strict=True))
    facts = facts_of(corpus, knowledge.graph)
    # Likeness of documents is a cosine, whatever the encoder compares by.
    vectors = exact.directions(np.asarray(document_embeddings))
    encoder = encoder_info["encoder"]
    network = None
    mined = queries[queries.split == "train"]
    if with_network(encoder) in shipped()["models"] and len(mined):
        network = _by_network(document_texts(corpus), mined, search, dense, store)
    material = Material(terms, texts, vectors, facts, network=network)
    judge = FusedJudge(params.fused, material, encoder, seed, info["collection"])
    judge.fit(candidates)
    material.terms.prepare()
    total = judge.queries or None
    columns = add_columns(engine, judge, candidates, description="gathering evidence", total=total)
    return columns, judge.summary


def _by_network(
    texts: Sequence[str],
    queries: pd.DataFrame,
    search: SearchParams,
    dense: DenseParams,
    store: Store,
) -> ByNetwork | None:
    """Encode documents and queries by MiniLM, where it is the network that the search may have.

    multilingual-e5-small adds nothing to the other evidence (benchmarks/network_evidence.py).
    """
    query_texts = queries.text.tolist()
    settings, _ = network_settings(texts, search, dense, store, query_texts)
    if settings is None or settings.encoder != "minilm":
        return None
    encoder = Encoder(settings, store.path / "models", store)
    label = "encoding by the network, for the judge"
    by_query = encoder.encode(query_texts, "query", f"{label}: queries")
    by_document = encoder.encode(texts, "document", f"{label}: documents")
    return ByNetwork(by_document, dict(zip(queries.query_id, by_query, strict=True)))


def judge_candidates(
    *,
    candidates: CandidateShards,
    evidence: ColumnShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    params: DenoisingParams,
    seed: int,
    store: Store,
    engine: EngineParams,
    elo: EloParams,
    info: Mapping[str, Any],
) -> tuple[ColumnShards, dict[str, Any], dict[str, Any]]:
    """Add the judgments of a language model and a cross-encoder, and the final ``p_relevant``.

    The cross-encoder is asked if the recipe reads it, or an Elo that it reads; a language model if
    there is one.
    """
    chosen = recipes.get(recipe)
    params = chosen.settings("denoising", params)
    no_pairs = {"judged_pairs": 0}
    llm_summary: dict[str, Any] = {"calls": 0}
    if not (queries.split == "train").any():
        return ColumnShards(), no_pairs, llm_summary
    candidates = candidates.joined(evidence)
    texts: dict[str, Any] = {
        "query_texts": dict(zip(queries.query_id, queries.text, strict=True)),
        "document_texts": document_texts(corpus),
        "seed": seed,
    }
    answers = None
    if params.llm is not None and chosen.judged:
        from anmi.judging.llm import LLMJudge, Reader

        reader = Reader(params.llm, store, info["language"])
        llm = LLMJudge(reader=reader, threshold=doubt_threshold(chosen), **texts)
        answers = llm.fit(candidates)
        llm_summary = llm.summary
    by_elo = chosen.requires & OF_ELO and chosen.settings("elo", elo).judges.get("cross")
    if not (by_elo or chosen.requires & (OF_CROSS_ENCODER - OF_ELO)):
        columns = ColumnShards() if answers is None else add_columns(engine, answers, candidates)
        return columns, no_pairs, llm_summary
    from anmi.judging.denoise import Judge, Stack, stacked

    store.run = partial(map_shards, engine)
    places: dict[str, Any] = {"store": store, "models": store.path / "models"}
    options = params.cross_encoder
    judge = Judge(options=options, depth=params.depth, bars=_bars(chosen), **places, **texts)
    answered = candidates if answers is None else candidates.map(answers)
    # What is fitted looks at a few of many columns.
    read = answered.only("dense", "p_evidence", "p_heldout", GRADE, MARKED)
    judgments = judge.fit(read)
    stack = Stack.fit(read.map(judgments))
    reason = "" if stack.hidden else ", since no positive can be hidden to fit one"
    log.info("cross-encoder: weight %.2f beside the other evidence%s", stack.weight, reason)
    columns = add_columns(engine, partial(stacked, judgments, stack, answers), candidates)
    return columns, judge.summary | {"stack": vars(stack)}, llm_summary


def _bars(recipe: Recipe) -> list[tuple[str, float]]:
    """Return the steps that compare the cross-encoder's judgment, with their thresholds."""
    bars = {
        (step.name, step.params.threshold)
        for step in recipe.steps
        if getattr(step.params, "column", "") == "p_cross" and hasattr(step.params, "threshold")
    }
    return sorted(bars)


def doubt_threshold(recipe: Recipe) -> float:
    """Return the lowest probability that a step of the recipe compares; 0.1 where none is given."""
    thresholds = list[float]()
    for step in recipe.steps:
        settings = vars(step.params)
        if settings.get("column") in ("p_evidence", "p_relevant"):
            thresholds += filter(None, map(settings.get, ("negative", "barred", "threshold")))
    return min(thresholds, default=_DOUBTED)
