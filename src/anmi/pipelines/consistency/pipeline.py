"""Wiring of the consistency filter."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.consistency.nodes import check_consistency, summarise_consistency
from anmi.pipelines.wiring import stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage("consistency", [
        Node(
            check_consistency,
            inputs=["candidates", "params:recipe", "params:recipes", "params:consistency"],
            outputs="consistency",
            name="check_consistency",
        ),
        Node(
            summarise_consistency,
            inputs=["candidates", "consistency"],
            outputs="consistency_summary",
            name="summarise_consistency",
        ),
    ])  # fmt: skip
