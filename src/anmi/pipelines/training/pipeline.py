"""Wiring of training."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Pipeline

from anmi.pipelines.training.nodes import score_candidates, train_retriever
from anmi.pipelines.wiring import by_name, node, stage

TRAINED_ON: Final = by_name(
    "corpus",
    "queries",
    "qrels",
    "knowledge",
    "variants",
    "related_documents",
    "pseudo_queries",
    "scored_candidates",
    "new_documents",
    "corpus_encoder",
    "params:encoder",
    "params:recipe",
    "params:recipes",
    "params:dense",
    "params:seed",
    "store",
    rows="training_rows",
    params="params:training",
)
SCORED_BY: Final = by_name(
    "pseudo_queries",
    "qrels",
    "training_rows",
    "corpus",
    "related_documents",
    "new_documents",
    "bm25_index",
    "corpus_encoder",
    "params:encoder",
    "params:recipe",
    "params:recipes",
    "params:training",
    "params:search",
    "params:dense",
    "store",
)
TRAINED: Final = by_name(
    "training_log",
    "training_summary",
    "drawn_negatives",
    "latent_neighbours",
    trained_model="measured_model",
)


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(
        "training",
        [
            node(score_candidates, SCORED_BY, "scored_candidates"),
            node(train_retriever, TRAINED_ON, TRAINED),
        ],
    )
