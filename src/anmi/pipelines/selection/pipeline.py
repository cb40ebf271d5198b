"""Wiring of selection."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.selection.nodes import (
    export_formats,
    export_pairs,
    make_training_rows,
    make_variants,
    select_negatives,
    summarise_selection,
)
from anmi.pipelines.wiring import by_name, stage
from anmi.selection.recipe import RATED


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    recipe = by_name("params:recipe", "params:recipes")
    return stage("selection", [
        Node(
            select_negatives,
            inputs=recipe | by_name(*RATED, "corpus", "new_documents", "params:seed", "params:engine"),
            outputs="selection",
            name="select_negatives",
        ),
        Node(
            make_training_rows,
            inputs=recipe | by_name("selection", "corpus", "queries", "qrels", "related_documents"),
            outputs="training_rows",
            name="make_training_rows",
        ),
        Node(
            make_variants,
            inputs=recipe
            | by_name(
                "corpus", "queries", "qrels", "knowledge", "params:selection", "params:training", "params:seed"
            ),
            outputs="variants",
            name="make_variants",
        ),
        Node(
            export_pairs,
            inputs=["training_rows", "corpus", "queries", "collection_info"],
            outputs="negatives",
            name="export_pairs",
        ),
        Node(
            summarise_selection,
            inputs=recipe
            | by_name(
                "selection", "equivalents", "qrels", "queries", "fused_judge", "marks", "corpus", rows="training_rows",
                info="collection_info",
            ),
            outputs="selection_summary",
            name="summarise_selection",
        ),
        Node(
            export_formats,
            inputs=by_name(
                "corpus", "queries", "encoder_info", "params:selection", "params:recipe", rows="training_rows",
                info="collection_info",
            ),
            outputs="exports",
            name="export_formats",
        ),
    ])  # fmt: skip
