"""Wiring of evaluation."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.evaluation.nodes import (
    bucket_queries,
    compare_systems,
    describe_hardness,
    measure_knowledge,
    run_systems,
    score_runs,
)
from anmi.pipelines.wiring import by_name


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            run_systems,
            inputs=by_name(
                "bm25_index", "trained_model", "corpus", "queries", "qrels", "params:encoder", "params:recipe",
                "params:dense", "store", "training_summary", params="params:evaluation",
            ),
            outputs="runs",
            name="run_systems",
        ),
        Node(
            score_runs,
            inputs=["runs", "queries", "qrels", "params:evaluation"],
            outputs="query_metrics",
            name="score_runs",
        ),
        Node(
            describe_hardness,
            inputs=["query_metrics", "queries", "params:evaluation"],
            outputs="hardness_results",
            name="describe_hardness",
        ),
        Node(
            bucket_queries,
            inputs=by_name(
                "corpus", "queries", "qrels", "pseudo_queries", "training_rows", "training_summary",
                "params:adaptation", "params:seed", scores="query_metrics",
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
                "runs", "trained_model", "corpus", "queries", "qrels", "knowledge", "variants", "params:encoder",
                "params:recipe", "params:dense", "params:seed", "store", "training_summary",
                params="params:evaluation",
            ),
            outputs=["knowledge_metrics", "neighbours"],
            name="measure_knowledge",
        ),
    ])  # fmt: skip
