"""Wiring of the Elo ratings."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.elo.nodes import rate_candidates

_READ = ("candidates", "evidence", "judgments", "corpus", "queries", "store", "mining_plan")


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            rate_candidates,
            inputs={
                **{name: name for name in _READ},
                **{name: f"params:{name}" for name in ("recipe", "recipes", "seed", "engine")},
                "params": "params:elo",
            },
            outputs=["ratings", "elo_summary"],
            name="rate_candidates",
        ),
    ])  # fmt: skip
