"""Wiring of evaluation."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.evaluation.nodes import (
    compare_systems,
    describe_hardness,
    measure_knowledge,
    run_systems,
    score_runs,
)


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            run_systems,
            inputs=[
                "bm25_index", "trained_model", "corpus", "queries", "qrels", "params:encoder", "params:recipe",
                "params:evaluation", "params:dense", "store", "training_summary",
            ],
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
            compare_systems,
            inputs=[
                "query_metrics", "collection_info", "params:encoder", "params:recipe", "params:evaluation",
                "params:seed",
            ],
            outputs=["metrics", "comparisons", "metrics_flat"],
            name="compare_systems",
        ),
        Node(
            measure_knowledge,
            inputs=[
                "runs", "trained_model", "corpus", "queries", "qrels", "graph", "entities", "facts", "variants",
                "params:encoder", "params:recipe", "params:evaluation", "params:dense", "params:seed", "store",
                "training_summary",
            ],
            outputs=["knowledge_metrics", "neighbours"],
            name="measure_knowledge",
        ),
    ])  # fmt: skip
