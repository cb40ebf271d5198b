"""Wiring of ingestion."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.ingestion.nodes import ingest
from anmi.pipelines.wiring import by_name, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    outputs = [
        "corpus", "queries", "qrels", "marks", "equivalents", "knowledge", "related_documents", "new_documents",
        "quarantine", "given_runs", "collection_info",
    ]  # fmt: skip
    return stage("ingestion", [
        Node(
            ingest,
            inputs=["params:collection", "params:ingestion", "params:seed"],
            outputs=by_name(*outputs),
            name="ingest",
        ),
    ])  # fmt: skip
