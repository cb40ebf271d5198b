"""Wiring of lexical retrieval."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.bm25.nodes import build_bm25_index, search_bm25


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            build_bm25_index,
            inputs=["corpus", "collection_info", "params:bm25"],
            outputs="bm25_index",
            name="build_bm25_index",
        ),
        Node(
            search_bm25,
            inputs=[
                "bm25_index", "corpus", "queries", "qrels", "duplicates", "params:bm25", "params:engine", "changes",
            ],
            outputs="bm25_candidates",
            name="search_bm25",
        ),
    ])  # fmt: skip
