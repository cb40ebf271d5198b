"""Wiring of selection."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.selection.nodes import (
    export_formats,
    export_pairs,
    fit_recipe,
    make_training_rows,
    make_variants,
    select_negatives,
    summarise_selection,
)


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            fit_recipe,
            inputs=[
                "rated_candidates", "consistency", "params:recipe", "params:recipes", "params:seed", "queries",
                "changes", "earlier_recipe_fits",
            ],
            outputs="recipe_fits",
            name="fit_recipe",
        ),
        Node(
            select_negatives,
            inputs=[
                "rated_candidates", "consistency", "params:recipe", "params:recipes", "params:seed", "params:engine",
                "recipe_fits", "changes", "corpus", "earlier_contents", "earlier_selection",
            ],
            outputs="selection",
            name="select_negatives",
        ),
        Node(
            make_training_rows,
            inputs=["selection", "corpus", "queries", "kin", "duplicates", "params:recipe", "params:recipes"],
            outputs="training_rows",
            name="make_training_rows",
        ),
        Node(
            make_variants,
            inputs=[
                "corpus", "queries", "qrels", "graph", "entities", "facts",
                "params:recipe", "params:recipes", "params:selection", "params:seed", "params:training",
            ],
            outputs="variants",
            name="make_variants",
        ),
        Node(
            export_pairs,
            inputs=["training_rows", "corpus", "queries", "collection_info", "params:selection"],
            outputs="negatives",
            name="export_pairs",
        ),
        Node(
            summarise_selection,
            inputs=[
                "selection", "training_rows", "equivalents", "qrels", "queries", "collection_info",
                "fused_judge", "params:recipe", "params:recipes",
            ],
            outputs="selection_summary",
            name="summarise_selection",
        ),
        Node(
            export_formats,
            inputs=["training_rows", "corpus", "queries", "collection_info", "params:selection", "encoder_info"],
            outputs="exports",
            name="export_formats",
        ),
    ])  # fmt: skip
