"""Wiring of training."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Pipeline

from anmi.pipelines.dense.nodes import make_corpus_part
from anmi.pipelines.training.nodes import prepare_training_data, score_candidates, train_retriever
from anmi.pipelines.wiring import by_name, node, stage

# What every node reads; `final` reads its own of some.
_SHARED: Final = (
    "training_rows",
    "corpus",
    "new_documents",
    "params:recipe",
    "params:recipes",
    "params:training",
)
_ENCODED: Final = ("corpus_encoder", "related_documents", "params:encoder", "params:dense", "store")
PREPARED_FROM: Final = by_name(*_SHARED, "queries", "qrels", "pseudo_queries", "params:seed")
PART_MADE_OF: Final = by_name(
    "corpus",
    "new_documents",
    "corpus_encoder",
    "params:search",
    "params:seed",
    "store",
    params="params:dense",
)
SCORED_BY: Final = by_name(
    *_SHARED, *_ENCODED, "pseudo_queries", "qrels", "bm25_index", "params:search"
) | {"corpus_encoder": "corpus_part"}
TRAINED_ON: Final = by_name(
    *_SHARED,
    *_ENCODED,
    "training_data",
    "scored_candidates",
    "knowledge",
    "variants",
    "params:seed",
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
    nodes = [
        node(prepare_training_data, PREPARED_FROM, "training_data"),
        node(make_corpus_part, PART_MADE_OF, "corpus_part"),
        node(score_candidates, SCORED_BY, "scored_candidates"),
        node(train_retriever, TRAINED_ON, TRAINED),
    ]
    return stage("training", nodes)
