"""Wiring of selection."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.selection import nodes
from anmi.pipelines.wiring import by_name, node, stage
from anmi.selection.recipe import STAGE_COLUMNS


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    shared = by_name("corpus", "params:recipe", "params:recipes")
    labelled = shared | by_name("queries", "qrels")
    selected_by = by_name(
        *STAGE_COLUMNS, "new_documents", "params:seed", "params:engine", dev="dev_candidates"
    )
    varied_by = by_name("knowledge", "params:selection", "params:training", "params:seed")
    summarised_by = by_name(
        "selection",
        "training_rows",
        "equivalents",
        "fused_judge",
        "marks",
        info="collection_info",
    )
    return stage(
        "selection",
        [
            node(nodes.select_negatives, shared | selected_by, "selection"),
            node(
                nodes.make_training_rows,
                labelled | by_name("selection", "related_documents"),
                "training_rows",
            ),
            node(nodes.make_variants, labelled | varied_by, "variants"),
            node(
                nodes.export_pairs,
                ["training_rows", "corpus", "queries", "collection_info"],
                "negatives",
            ),
            node(nodes.summarise_selection, labelled | summarised_by, "selection_summary"),
        ],
    )
