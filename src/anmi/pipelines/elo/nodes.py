"""Nodes of the Elo ratings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pandas as pd

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.difference import EVERYTHING, still_there
from anmi.engine import IN_PROCESS, EngineParams, map_blocks
from anmi.pipelines.elo.params import EloParams
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

log = logging.getLogger(__name__)


def rate_candidates(
    judged: CandidateShards,
    recipe: str,
    recipes: RecipeBook,
    params: EloParams,
    seed: int,
    corpus: pd.DataFrame | None = None,
    queries: pd.DataFrame | None = None,
    store: Store | None = None,
    engine: EngineParams = IN_PROCESS,
    changes: Mapping[str, Any] = EVERYTHING,
    earlier_elo_summary: dict[str, Any] | None = None,
) -> tuple[CandidateShards, dict[str, Any]]:
    """Return one row per (query, positive), rated if the recipe reads Elo; only pairwise judges read the texts.

    Temperatures and votes are fitted on training queries; where rows of an earlier mining are kept, they are those of
    then.
    """
    if not recipes.get(recipe).requires & {"elo", "elo_se", "gap_se"}:
        log.info("Recipe %s reads no Elo; candidates are passed on unrated", recipe)
        return map_blocks(engine, Candidates.by_positive, judged), {"temperatures": {}}
    from anmi.corpus.mined import of_train
    from anmi.judging.panel import Texts
    from anmi.judging.rating import Rater

    judges, texts = {}, Texts()
    if params.pairwise and corpus is not None and queries is not None and store is not None:
        from anmi.corpus.texts import document_texts
        from anmi.judging.pairwise import load_pairwise

        judges = {name: load_pairwise(options, store, seed) for name, options in params.pairwise.items()}
        texts = Texts(dict(zip(queries.query_id, queries.text, strict=True)), document_texts(corpus))
    rater = Rater(params, seed, judges, texts)
    if changes["queries"] is None:
        read = judged.only(*params.judges)
        rater.fit(read if queries is None else of_train(read, queries))
    else:
        rater.restore(still_there(earlier_elo_summary, "elo_summary"))
    # A pairwise judge holds a model, or asks an endpoint at a bounded rate.
    rated = judged.map(rater) if judges else map_blocks(engine, rater, judged, description="rating")
    return rated, rater.summary | {"options": params.model_dump(mode="json")}
