"""Wiring of dense retrieval, and of retrieval by all sources."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Pipeline

from anmi.pipelines.dense.nodes import (
    build_dense_index,
    encode_collection,
    make_corpus_encoder,
    retrieve,
    retrieve_dev,
)
from anmi.pipelines.wiring import by_name, node, stage

ENCODER_MADE_OF: Final = by_name(
    "corpus",
    "new_documents",
    "params:encoder",
    "params:seed",
    "store",
    params="params:dense",
)


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    retrieved = by_name(
        "bm25_index",
        "dense_index",
        "document_embeddings",
        "query_embeddings",
        "corpus",
        "queries",
        "qrels",
        "marks",
        "related_documents",
        "params:recipe",
        "params:recipes",
        "params:bm25",
        "params:dense",
        "params:seed",
        "params:engine",
    )
    return stage(
        "dense",
        [
            node(make_corpus_encoder, ENCODER_MADE_OF, "corpus_encoder"),
            node(
                encode_collection,
                by_name(
                    "corpus",
                    "queries",
                    "corpus_encoder",
                    "store",
                    "params:encoder",
                    "params:recipe",
                    "params:recipes",
                    "params:engine",
                    params="params:dense",
                ),
                by_name("document_embeddings", "query_embeddings", "encoder_info"),
            ),
            node(
                build_dense_index,
                ["corpus", "document_embeddings", "encoder_info", "params:dense"],
                "dense_index",
            ),
            node(retrieve, retrieved, "candidates"),
            node(retrieve_dev, retrieved, "dev_candidates"),
        ],
    )
