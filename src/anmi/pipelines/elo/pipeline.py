"""Wiring of the Elo ratings."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.elo.nodes import rate_candidates


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            rate_candidates,
            inputs=[
                "judged_candidates", "params:recipe", "params:recipes", "params:elo", "params:seed",
                "corpus", "queries", "store", "params:engine", "changes", "earlier_elo_summary",
            ],
            outputs=["rated_candidates", "elo_summary"],
            name="rate_candidates",
        ),
    ])  # fmt: skip
