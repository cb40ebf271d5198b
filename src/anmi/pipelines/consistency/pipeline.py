"""Wiring of the consistency filter."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.consistency.nodes import check_consistency, summarise_consistency
from anmi.pipelines.wiring import node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(
        "consistency",
        [
            node(
                check_consistency,
                [
                    "candidates",
                    "params:recipe",
                    "params:recipes",
                    "params:consistency",
                    "params:bm25",
                ],
                "consistency",
            ),
            node(summarise_consistency, ["candidates", "consistency"], "consistency_summary"),
        ],
    )
