"""Wiring of dense retrieval, and of retrieval by all sources."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.dense.nodes import build_dense_index, encode_collection, make_corpus_encoder, retrieve
from anmi.pipelines.wiring import by_name, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage("dense", [
        Node(
            make_corpus_encoder,
            inputs=by_name(
                "corpus", "new_documents", "params:encoder", "params:seed", "store", params="params:dense"
            ),
            outputs="corpus_encoder",
            name="make_corpus_encoder",
        ),
        Node(
            encode_collection,
            inputs=by_name(
                "corpus", "queries", "corpus_encoder", "store", "params:encoder", "params:recipe", "params:recipes",
                "params:engine", params="params:dense",
            ),
            outputs=by_name("document_embeddings", "query_embeddings", "encoder_info"),
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
            inputs=by_name(
                "bm25_index", "dense_index", "document_embeddings", "query_embeddings", "corpus", "queries", "qrels",
                "marks", "related_documents", "params:recipe", "params:recipes", "params:bm25",
                "params:dense", "params:seed", "params:engine",
            ),
            outputs="candidates",
            name="retrieve",
        ),
    ])  # fmt: skip
