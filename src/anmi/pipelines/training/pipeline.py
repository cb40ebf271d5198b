"""Wiring of training."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.training.nodes import train_retriever

_READ = ("corpus", "queries", "qrels", "knowledge", "variants", "related_documents", "store")


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            train_retriever,
            inputs={
                **{name: name for name in _READ},
                **{name: f"params:{name}" for name in ("encoder", "recipe", "recipes", "dense", "seed")},
                "rows": "training_rows",
                "params": "params:training",
            },
            outputs={
                name: name for name in ("trained_model", "training_log", "training_summary", "drawn_negatives")
            },
            name="train_retriever",
        ),
    ])  # fmt: skip
