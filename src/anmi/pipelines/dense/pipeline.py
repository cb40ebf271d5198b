"""Wiring of dense retrieval."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.dense.nodes import build_dense_index, encode_collection, merge_candidates


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            encode_collection,
            inputs=["corpus", "queries", "params:encoder", "params:dense", "store", "params:engine"],
            outputs={name: name for name in ("document_embeddings", "query_embeddings", "encoder_info")},
            name="encode_collection",
        ),
        Node(
            build_dense_index,
            inputs=["corpus", "document_embeddings", "encoder_info", "params:dense"],
            outputs="dense_index",
            name="build_dense_index",
        ),
        Node(
            merge_candidates,
            inputs=[
                "bm25_candidates", "bm25_index", "dense_index", "document_embeddings", "query_embeddings",
                "corpus", "queries", "duplicates", "kin", "params:dense", "params:seed", "params:engine",
            ],
            outputs="candidates",
            name="merge_candidates",
        ),
    ])  # fmt: skip
