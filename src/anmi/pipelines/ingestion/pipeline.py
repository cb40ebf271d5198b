"""Wiring of ingestion."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.ingestion.nodes import ingest, plan_mining

# All that a change of the collection is weighed by.
_SETTINGS: Final = (
    "update", "keep_judges", "collection", "encoder", "recipe", "recipes", "ingestion", "bm25", "consistency", "dense",
    "denoising", "elo", "seed",
)  # fmt: skip


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    outputs = [
        "corpus", "queries", "qrels", "equivalents", "knowledge", "related_documents", "quarantine",
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
            plan_mining,
            inputs={
                **{name: name for name in ("corpus", "queries", "qrels", "knowledge", "store")},
                **{name: f"params:{name}" for name in _SETTINGS},
                **{name: name for name in ("earlier_mining", "earlier_selection")},
            },
            outputs=["contents", "mining_plan"],
            name="plan_mining",
        ),
    ])  # fmt: skip
