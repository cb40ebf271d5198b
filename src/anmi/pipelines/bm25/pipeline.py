"""Wiring of lexical retrieval."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.bm25.nodes import build_bm25_index, cut_terms
from anmi.pipelines.wiring import node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(
        "bm25",
        [
            node(
                cut_terms,
                ["corpus", "collection_info", "params:recipe", "params:recipes", "params:bm25"],
                "terms",
            ),
            node(
                build_bm25_index,
                ["terms", "params:recipe", "params:recipes", "params:bm25"],
                "bm25_index",
            ),
        ],
    )
