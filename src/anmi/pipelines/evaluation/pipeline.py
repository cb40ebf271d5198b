"""Wiring of evaluation."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.evaluation import nodes
from anmi.pipelines.evaluation.search import build_search, run_systems
from anmi.pipelines.wiring import by_name, node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(
        "evaluation",
        [
            node(
                build_search,
                by_name(
                    "trained_model",
                    "bm25_index",
                    "terms",
                    "corpus",
                    "queries",
                    "qrels",
                    "pseudo_queries",
                    "dev_run",
                    "training_summary",
                    "params:recipe",
                    "params:dense",
                    "params:seed",
                    "store",
                    info="collection_info",
                    params="params:evaluation",
                ),
                "search_index",
            ),
            node(
                run_systems,
                by_name(
                    "search_index",
                    "terms",
                    "corpus_encoder",
                    "corpus",
                    "queries",
                    "qrels",
                    "pseudo_queries",
                    "given_runs",
                    "params:encoder",
                    "params:recipe",
                    "params:dense",
                    "store",
                    params="params:evaluation",
                ),
                "runs",
            ),
            node(
                nodes.score_runs,
                by_name(
                    "runs",
                    "corpus",
                    "queries",
                    "qrels",
                    "pseudo_queries",
                    "params:recipe",
                    params="params:evaluation",
                ),
                "query_metrics",
            ),
            node(
                nodes.describe_hardness,
                [
                    "query_metrics",
                    "queries",
                    "pseudo_queries",
                    "params:evaluation",
                ],
                "hardness_results",
            ),
            node(
                nodes.bucket_queries,
                by_name(
                    "corpus",
                    "queries",
                    "qrels",
                    "pseudo_queries",
                    "training_rows",
                    "training_summary",
                    "new_documents",
                    "params:seed",
                    scores="query_metrics",
                ),
                "query_buckets",
            ),
            node(
                nodes.compare_systems,
                by_name(
                    "query_buckets",
                    "params:encoder",
                    "params:recipe",
                    "params:seed",
                    scores="query_metrics",
                    info="collection_info",
                    params="params:evaluation",
                ),
                ["metrics", "comparisons", "metrics_flat"],
            ),
            node(
                nodes.measure_knowledge,
                by_name(
                    "runs",
                    "trained_model",
                    "corpus",
                    "queries",
                    "qrels",
                    "knowledge",
                    "variants",
                    "pseudo_queries",
                    "corpus_encoder",
                    "params:encoder",
                    "params:recipe",
                    "params:dense",
                    "params:seed",
                    "store",
                    params="params:evaluation",
                ),
                ["knowledge_metrics", "neighbours"],
            ),
        ],
    )
