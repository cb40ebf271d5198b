"""Wiring of evaluation."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Pipeline

from anmi.pipelines.evaluation import nodes
from anmi.pipelines.evaluation.search import (
    fit_search,
    make_parts,
    measure_dimensions,
    rank_by_parts,
    run_systems,
    time_parts,
)
from anmi.pipelines.wiring import by_name, node, stage

# By which dev queries the parts are compared.
_DEV: Final = (
    "corpus",
    "queries",
    "qrels",
    "pseudo_queries",
    "training_summary",
    "params:seed",
)
PARTS_MADE_OF: Final = by_name(
    "corpus_encoder",
    "bm25_index",
    *_DEV,
    "params:encoder",
    "params:search",
    "params:dense",
    "store",
    trained_model="measured_model",
)


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(
        "evaluation",
        [
            node(make_parts, PARTS_MADE_OF, "search_parts"),
            node(
                rank_by_parts,
                by_name("search_parts", "terms", *_DEV, params="params:evaluation"),
                by_name("dev_part_runs", "part_runs"),
            ),
            node(
                fit_search,
                by_name(
                    "search_parts",
                    "dev_part_runs",
                    *_DEV,
                    "params:recipe",
                    "params:search",
                    "params:dense",
                    info="collection_info",
                ),
                "measured_search",
            ),
            node(
                measure_dimensions,
                by_name(
                    "search_parts",
                    "terms",
                    "corpus",
                    "queries",
                    "qrels",
                    "pseudo_queries",
                    "training_summary",
                    params="params:evaluation",
                ),
                "dimension_metrics",
            ),
            node(time_parts, ["search_parts", "corpus"], "part_milliseconds"),
            node(
                run_systems,
                by_name(
                    "part_runs",
                    "measured_search",
                    "corpus",
                    "queries",
                    "qrels",
                    "pseudo_queries",
                    "given_runs",
                    "params:recipe",
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
                    trained_model="measured_model",
                    params="params:evaluation",
                ),
                ["knowledge_metrics", "neighbours"],
            ),
        ],
    )
