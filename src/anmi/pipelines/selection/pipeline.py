"""Wiring of selection."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.selection import nodes
from anmi.pipelines.wiring import by_name, node, stage
from anmi.selection.recipe import STAGE_COLUMNS


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    recipe = by_name("params:recipe", "params:recipes")
    return stage(
        "selection",
        [
            node(
                nodes.select_negatives,
                recipe
                | by_name(
                    *STAGE_COLUMNS,
                    "corpus",
                    "new_documents",
                    "params:seed",
                    "params:engine",
                    dev="dev_candidates",
                ),
                "selection",
            ),
            node(
                nodes.make_training_rows,
                recipe
                | by_name(
                    "selection",
                    "corpus",
                    "queries",
                    "qrels",
                    "related_documents",
                ),
                "training_rows",
            ),
            node(
                nodes.make_variants,
                recipe
                | by_name(
                    "corpus",
                    "queries",
                    "qrels",
                    "knowledge",
                    "params:selection",
                    "params:training",
                    "params:seed",
                ),
                "variants",
            ),
            node(
                nodes.export_pairs,
                ["training_rows", "corpus", "queries", "collection_info"],
                "negatives",
            ),
            node(
                nodes.summarise_selection,
                recipe
                | by_name(
                    "selection",
                    "equivalents",
                    "qrels",
                    "queries",
                    "fused_judge",
                    "marks",
                    "corpus",
                    rows="training_rows",
                    info="collection_info",
                ),
                "selection_summary",
            ),
        ],
    )
