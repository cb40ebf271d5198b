"""Wiring of the Elo ratings."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.elo.nodes import rate_candidates
from anmi.pipelines.wiring import by_name, node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(
        "elo",
        [
            node(
                rate_candidates,
                by_name(
                    "candidates",
                    "evidence",
                    "judgments",
                    "corpus",
                    "queries",
                    "store",
                    "params:recipe",
                    "params:recipes",
                    "params:seed",
                    "params:engine",
                    params="params:elo",
                ),
                ["ratings", "elo_summary"],
            ),
        ],
    )
