"""Wiring of evaluation."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.evaluation.nodes import (
    bucket_queries,
    compare_systems,
    describe_hardness,
    measure_knowledge,
    score_runs,
)
from anmi.pipelines.evaluation.search import build_search, run_systems
from anmi.pipelines.wiring import by_name, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage("evaluation", [
        Node(
            build_search,
            inputs=by_name(
                "trained_model", "bm25_index", "terms", "corpus", "queries", "qrels", "pseudo_queries", "dev_run",
                "training_summary", "params:recipe", "params:dense", "params:seed", "store", info="collection_info",
                params="params:evaluation",
            ),
            outputs="search_index",
            name="build_search",
        ),
        Node(
            run_systems,
            inputs=by_name(
                "search_index", "terms", "corpus_encoder", "corpus", "queries", "qrels", "pseudo_queries", "given_runs",
                "params:encoder", "params:recipe", "params:dense", "store", params="params:evaluation",
            ),
            outputs="runs",
            name="run_systems",
        ),
        Node(
            score_runs,
            inputs=by_name(
                "runs", "corpus", "queries", "qrels", "pseudo_queries", "related_documents", "params:recipe",
                params="params:evaluation",
            ),
            outputs="query_metrics",
            name="score_runs",
        ),
        Node(
            describe_hardness,
            inputs=["query_metrics", "queries", "pseudo_queries", "params:evaluation"],
            outputs="hardness_results",
            name="describe_hardness",
        ),
        Node(
            bucket_queries,
            inputs=by_name(
                "corpus", "queries", "qrels", "pseudo_queries", "training_rows", "training_summary",
                "new_documents", "params:seed", scores="query_metrics",
            ),
            outputs="query_buckets",
            name="bucket_queries",
        ),
        Node(
            compare_systems,
            inputs=by_name(
                "query_buckets", "params:encoder", "params:recipe", "params:seed", scores="query_metrics",
                info="collection_info", params="params:evaluation",
            ),
            outputs=["metrics", "comparisons", "metrics_flat"],
            name="compare_systems",
        ),
        Node(
            measure_knowledge,
            inputs=by_name(
                "runs", "trained_model", "corpus", "queries", "qrels", "knowledge", "variants", "pseudo_queries",
                "corpus_encoder", "params:encoder", "params:recipe", "params:dense", "params:seed", "store",
                params="params:evaluation",
            ),
            outputs=["knowledge_metrics", "neighbours"],
            name="measure_knowledge",
        ),
    ])  # fmt: skip
