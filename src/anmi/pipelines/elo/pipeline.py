"""Wiring of the Elo ratings."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.elo.nodes import rate_candidates
from anmi.pipelines.wiring import by_name, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage("elo", [
        Node(
            rate_candidates,
            inputs=by_name(
                "candidates", "evidence", "judgments", "corpus", "queries", "store", "params:recipe",
                "params:recipes", "params:seed", "params:engine", params="params:elo",
            ),
            outputs=["ratings", "elo_summary"],
            name="rate_candidates",
        ),
    ])  # fmt: skip
