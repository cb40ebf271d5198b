"""Wiring of denoising."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.denoising.nodes import judge_candidates


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            judge_candidates,
            inputs=[
                "candidates", "corpus", "queries", "params:recipe", "params:recipes", "params:denoising",
                "params:seed", "store",
            ],
            outputs=["judged_candidates", "teacher"],
            name="judge_candidates",
        ),
    ])  # fmt: skip
