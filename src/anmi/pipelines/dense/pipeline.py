"""Wiring of dense retrieval, and of retrieval by all sources."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.dense.nodes import build_dense_index, encode_collection, retrieve


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            encode_collection,
            inputs={
                **{name: name for name in ("corpus", "queries", "store")},
                **{name: f"params:{name}" for name in ("encoder", "recipe", "recipes", "engine")},
                "params": "params:dense",
            },
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
            retrieve,
            inputs={
                **{name: name for name in _READ},
                **{name: f"params:{name}" for name in ("recipe", "recipes", "bm25", "dense", "seed", "engine")},
            },
            outputs="candidates",
            name="retrieve",
        ),
    ])  # fmt: skip


_READ = (
    "bm25_index", "dense_index", "document_embeddings", "query_embeddings", "corpus", "queries", "qrels",
    "related_documents", "mining_plan",
)  # fmt: skip
