"""These nodes rate candidates by Elo."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd

from anmi.candidates import CandidateShards, ColumnShards
from anmi.engine import IN_PROCESS, EngineParams, add_columns
from anmi.judging.rating import Rater
from anmi.pipelines.params import EloParams
from anmi.selection.recipe import OF_ELO, RecipeBook
from anmi.store import Store

log = logging.getLogger(__name__)


def rate_candidates(
    *,
    candidates: CandidateShards,
    evidence: ColumnShards,
    judgments: ColumnShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    store: Store,
    recipe: str,
    recipes: RecipeBook,
    params: EloParams,
    seed: int,
    engine: EngineParams = IN_PROCESS,
) -> tuple[ColumnShards, dict[str, Any]]:
    """Rate candidates beside their query's positive, if the recipe reads Elo; only pairwise judges read texts."""
    if not recipes.get(recipe).requires & OF_ELO:
        return ColumnShards(), {"temperatures": {}}
    params = recipes.get(recipe).settings("elo", params)

    judges = dict[str, Any]()
    texts = (dict[str, str](), list[str]())
    if params.pairwise:
        from anmi.corpus.texts import document_texts
        from anmi.judging.pairwise import ChatJudge

        judges = {name: ChatJudge(options, store) for name, options in params.pairwise.items()}
        texts = dict(zip(queries.query_id, queries.text, strict=True)), document_texts(corpus)
    judged = candidates.joined(evidence, judgments)
    rater = Rater(params, seed, judges, *texts)
    rater.fit(judged.only(*params.judges))
    # A pairwise judge holds a model, or asks an endpoint at a bounded rate.
    where = IN_PROCESS if judges else engine
    rated = add_columns(where, rater, judged, description="" if judges else "rating")
    return rated, rater.summary | {"options": params.model_dump(mode="json")}
