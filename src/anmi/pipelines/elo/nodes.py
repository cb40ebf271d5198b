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
    """Rate candidates beside their query's positive, if the recipe reads Elo."""
    if not recipes.get(recipe).requires & OF_ELO:
        return ColumnShards(), {"temperatures": {}}
    params = recipes.get(recipe).settings("elo", params)

    pairwise = dict[str, Any]()
    texts = (dict[str, str](), list[str]())
    if params.pairwise:
        from anmi.corpus.texts import document_texts
        from anmi.judging.pairwise import ChatJudge

        pairwise = {judge: ChatJudge(options, store) for judge, options in params.pairwise.items()}
        texts = dict(zip(queries.query_id, queries.text, strict=True)), document_texts(corpus)
    judged = candidates.joined(evidence, judgments)
    rater = Rater(params, seed, pairwise, *texts)
    rater.fit(judged.only(*params.judges))
    # A pairwise judge holds a model, or asks an endpoint at a bounded rate.
    rating_engine = IN_PROCESS if pairwise else engine
    description = "" if pairwise else "rating"
    rated = add_columns(rating_engine, rater, judged, description=description)
    fitted = {"temperatures": rater.temperatures, "slope": rater.slope}
    summary = {**fitted, "options": params.model_dump(mode="json")}
    return rated, summary
