"""Wiring of ingestion."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.ingestion.nodes import find_changes, ingest


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    outputs = [
        "corpus", "queries", "qrels", "equivalents", "graph", "entities", "facts", "duplicates", "kin", "quarantine",
        "collection_info",
    ]  # fmt: skip
    return Pipeline([
        Node(
            ingest,
            inputs=["params:collection", "params:ingestion", "params:seed", "params:training.refit"],
            outputs={name: name for name in outputs},
            name="ingest",
        ),
        Node(
            find_changes,
            inputs=[
                "corpus", "queries", "qrels", "graph", "params:update", "params:collection", "params:encoder",
                "params:recipe", "params:recipes", "params:ingestion", "params:bm25", "params:consistency",
                "params:dense", "params:denoising", "params:elo", "params:seed", "store", "earlier_contents",
                "earlier_changes", "earlier_selection", "earlier_teacher",
            ],
            outputs=["contents", "changes"],
            name="find_changes",
        ),
    ])  # fmt: skip
