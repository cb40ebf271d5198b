"""Nodes of denoising."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd

from anmi.candidates import Candidates, CandidateShards
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

log = logging.getLogger(__name__)
_MADE_OF_JUDGMENTS = {"cross", "p_cross", "p_relevant", "elo", "elo_se", "gap_se"}


def judge_candidates(
    candidates: CandidateShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    params: DenoisingParams,
    seed: int,
    store: Store,
) -> tuple[CandidateShards, dict[str, Any]]:
    """Add the cross-encoder's score and calibrated probability, if the recipe reads anything made of them."""
    if not recipes.get(recipe).requires & _MADE_OF_JUDGMENTS:
        log.info("Recipe %s reads no judgment; candidates are passed on unjudged", recipe)
        return candidates, {"judged_pairs": 0}
    from anmi.corpus.texts import document_texts
    from anmi.judging.denoise import Judge

    judge = Judge(
        options=params.teacher,
        depth=params.depth,
        store=store,
        models=store.path / "models",
        query_texts=dict(zip(queries.query_id, queries.text, strict=True)),
        document_texts=document_texts(corpus),
        seed=seed,
    )
    judge.fit(candidates)
    return candidates.map(lambda block: _believed(judge(block))), judge.summary


def _believed(block: Candidates) -> Candidates:
    """Take the teacher's probability as the final one, there being no other judge."""
    columns = (block.columns, block.positive_columns)
    return block.with_columns(*({"p_relevant": values["p_cross"]} for values in columns))
