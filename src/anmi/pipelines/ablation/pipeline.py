"""Wiring of the ablation."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.ablation.nodes import compare_recipes, finish, render_ablation, run_ablation
from anmi.pipelines.wiring import stage

_PARAMETERS = (
    "ablation", "recipes", "ingestion", "adaptation", "bm25", "consistency", "dense", "denoising", "elo", "audit",
    "training", "seed",
)  # fmt: skip


def create_pipeline() -> Pipeline:
    """Return the pipeline.

    One node does all cells, since what a cell needs is known only when its collection is mined, and a set is to be
    resumed cell by cell and not node by node.
    """
    places = {"work": "ablation_work", "store": "ablation_store"}
    return stage("ablation", [
        Node(
            run_ablation,
            inputs={name: f"params:{name}" for name in _PARAMETERS} | places,
            outputs=["ablation_cells", "ablation_queries"],
            name="run_ablation",
        ),
        Node(
            compare_recipes,
            inputs=["ablation_cells", "ablation_queries", "params:ablation", "params:denoising", "params:seed"],
            outputs="ablation_results",
            name="compare_recipes",
        ),
        Node(
            render_ablation,
            inputs="ablation_results",
            outputs="ablation_report",
            name="render_ablation",
        ),
        Node(
            finish,
            inputs=["ablation_results", "ablation_report"],
            outputs=None,
            name="finish_ablation",
        ),
    ])  # fmt: skip
