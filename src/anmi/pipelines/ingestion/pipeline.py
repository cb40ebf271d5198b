"""Wiring of ingestion."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.ingestion.nodes import ingest
from anmi.pipelines.wiring import by_name, node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    outputs = [
        "corpus",
        "queries",
        "qrels",
        "marks",
        "equivalents",
        "knowledge",
        "related_documents",
        "new_documents",
        "quarantine",
        "given_runs",
        "collection_info",
    ]
    return stage(
        "ingestion",
        [
            node(
                ingest, ["params:collection", "params:ingestion", "params:seed"], by_name(*outputs)
            ),
        ],
    )
