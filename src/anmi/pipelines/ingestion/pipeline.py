"""Wiring of ingestion."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.ingestion.nodes import ingest, plan_mining
from anmi.pipelines.wiring import by_name, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    outputs = [
        "corpus", "queries", "qrels", "marks", "equivalents", "knowledge", "related_documents", "quarantine",
        "collection_info",
    ]  # fmt: skip
    settings = (
        "update", "keep_judges", "collection", "encoder", "recipe", "recipes", "ingestion", "bm25", "consistency",
        "dense", "denoising", "elo", "seed",
    )  # fmt: skip
    return stage("ingestion", [
        Node(
            ingest,
            inputs=["params:collection", "params:ingestion", "params:seed", "params:training.refit"],
            outputs=by_name(*outputs),
            name="ingest",
        ),
        Node(
            plan_mining,
            inputs=by_name(
                "corpus", "queries", "qrels", "marks", "knowledge", "store", "earlier_mining_record",
                "earlier_selection", *(f"params:{name}" for name in settings),
            ),
            outputs=["contents", "mining_plan"],
            name="plan_mining",
        ),
    ])  # fmt: skip
