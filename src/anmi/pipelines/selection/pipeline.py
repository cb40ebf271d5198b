"""Wiring of selection."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.selection.nodes import (
    export_formats,
    export_pairs,
    fit_recipe,
    make_training_rows,
    make_variants,
    record_mining,
    select_negatives,
    summarise_selection,
)

# The candidates, and the columns that stages added to them.
RATED: Final = ("candidates", "consistency", "evidence", "judgments", "ratings")


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    recipe = {name: f"params:{name}" for name in ("recipe", "recipes")}
    seeded = recipe | {"seed": "params:seed"}
    rated = {name: name for name in RATED}
    earlier = {name: name for name in ("corpus", "earlier_mining", "earlier_selection")}
    collection = {name: name for name in ("corpus", "queries")}
    return Pipeline([
        Node(
            fit_recipe,
            inputs=rated | seeded | {"queries": "queries", "mining_plan": "mining_plan"},
            outputs="recipe_fits",
            name="fit_recipe",
        ),
        Node(
            select_negatives,
            inputs=rated | seeded | earlier | {
                "fits": "recipe_fits", "mining_plan": "mining_plan", "engine": "params:engine",
            },
            outputs="selection",
            name="select_negatives",
        ),
        Node(
            record_mining,
            inputs={
                name: name
                for name in (
                    "contents", "mining_plan", "selection", "fused_judge", "teacher", "elo_summary", "recipe_fits",
                )
            },
            outputs="mining_record",
            name="record_mining",
        ),
        Node(
            make_training_rows,
            inputs=collection | recipe | {name: name for name in ("selection", "related_documents")},
            outputs="training_rows",
            name="make_training_rows",
        ),
        Node(
            make_variants,
            inputs=collection | seeded
            | {name: name for name in ("qrels", "knowledge")}
            | {"selection": "params:selection", "training": "params:training"},
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
            inputs=recipe
            | {name: name for name in ("selection", "equivalents", "qrels", "queries", "fused_judge")}
            | {"rows": "training_rows", "info": "collection_info"},
            outputs="selection_summary",
            name="summarise_selection",
        ),
        Node(
            export_formats,
            inputs=collection
            | {"rows": "training_rows", "info": "collection_info", "encoder_info": "encoder_info"}
            | {"selection": "params:selection"},
            outputs="exports",
            name="export_formats",
        ),
    ])  # fmt: skip
