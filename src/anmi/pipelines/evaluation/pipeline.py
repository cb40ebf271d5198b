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
    asked = {"encoder": "params:encoder", "recipe": "params:recipe", "params": "params:evaluation"}
    tested = {name: name for name in ("corpus", "queries", "qrels")}
    systems = (
        asked | {name: name for name in ("trained_model", "training_summary", "store")} | {"dense": "params:dense"}
    )
    return Pipeline([
        Node(
            run_systems,
            inputs=tested | systems | {"bm25_index": "bm25_index"},
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
            inputs=asked | {"scores": "query_metrics", "info": "collection_info", "seed": "params:seed"},
            outputs=["metrics", "comparisons", "metrics_flat"],
            name="compare_systems",
        ),
        Node(
            measure_knowledge,
            inputs=tested | systems
            | {name: name for name in ("runs", "knowledge", "variants")}
            | {"seed": "params:seed"},
            outputs=["knowledge_metrics", "neighbours"],
            name="measure_knowledge",
        ),
    ])  # fmt: skip
