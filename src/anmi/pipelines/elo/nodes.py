"""Nodes of the Elo ratings."""

from __future__ import annotations

import logging
from typing import Any

from anmi.candidates import Candidates, CandidateShards
from anmi.pipelines.elo.params import EloParams
from anmi.selection.recipe import RecipeBook

log = logging.getLogger(__name__)


def rate_candidates(
    judged: CandidateShards, recipe: str, recipes: RecipeBook, params: EloParams, seed: int
) -> tuple[CandidateShards, dict[str, Any]]:
    """Return one row per (query, positive), rated if the recipe reads Elo."""
    if not recipes.get(recipe).requires & {"elo", "elo_se", "gap_se"}:
        log.info("Recipe %s reads no Elo; candidates are passed on unrated", recipe)
        return judged.map(Candidates.by_positive), {"temperatures": {}}
    from anmi.judging.rating import Rater

    rater = Rater(params, seed)
    rater.fit(judged)
    return judged.map(rater), {"temperatures": rater.temperatures, "options": params.model_dump(mode="json")}
