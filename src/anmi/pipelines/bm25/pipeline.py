"""Wiring of lexical retrieval."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.bm25.nodes import build_bm25_index, cut_terms
from anmi.pipelines.wiring import stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage("bm25", [
        Node(
            cut_terms,
            inputs=["corpus", "collection_info", "params:recipe", "params:recipes", "params:bm25"],
            outputs="terms",
            name="cut_terms",
        ),
        Node(
            build_bm25_index,
            inputs=["terms", "params:recipe", "params:recipes", "params:bm25"],
            outputs="bm25_index",
            name="build_bm25_index",
        ),
    ])  # fmt: skip
