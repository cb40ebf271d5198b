"""Wiring of ingestion."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.ingestion.nodes import ingest


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    outputs = [
        "corpus", "queries", "qrels", "equivalents", "graph", "entities", "facts", "duplicates", "kin", "quarantine",
        "collection_info",
    ]  # fmt: skip
    return Pipeline([
        Node(
            ingest,
            inputs=["params:collection", "params:ingestion", "params:seed"],
            outputs={name: name for name in outputs},
            name="ingest",
        ),
    ])  # fmt: skip
