"""Wiring of evaluation."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.evaluation import nodes, search
from anmi.pipelines.wiring import by_name, node, stage

_ASKED: Final = ("corpus", "queries", "qrels", "pseudo_queries")
# By which dev queries the parts are compared.
_DEV: Final = (*_ASKED, "training_summary", "params:seed")
PARTS_MADE_OF: Final = by_name(
    *_DEV,
    "bm25_index",
    "params:encoder",
    "params:search",
    "params:dense",
    "store",
    corpus_encoder="corpus_part",
    trained_model="measured_model",
)


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage("evaluation", [*_ranked(), *_measured()])


def _ranked() -> list[Node]:
    fitted_by = by_name(
        *_DEV,
        "search_parts",
        "dev_part_runs",
        "params:recipe",
        "params:search",
        "params:dense",
        info="collection_info",
    )
    run_by = by_name(
        *_ASKED,
        "part_runs",
        "measured_search",
        "given_runs",
        "params:recipe",
        params="params:evaluation",
    )
    return [
        node(search.make_parts, PARTS_MADE_OF, "search_parts"),
        node(
            search.rank_by_parts,
            by_name(*_DEV, "search_parts", "terms", params="params:evaluation"),
            by_name("dev_part_runs", "part_runs"),
        ),
        node(search.fit_search, fitted_by, "measured_search"),
        node(search.time_parts, ["search_parts", "corpus"], "part_milliseconds"),
        node(search.run_systems, run_by, "runs"),
    ]


def _measured() -> list[Node]:
    cut_by = by_name(
        *_ASKED, "search_parts", "terms", "training_summary", params="params:evaluation"
    )
    bucketed_by = by_name(*_DEV, "query_metrics", "training_rows", "new_documents")
    compared_by = by_name(
        "query_metrics",
        "query_buckets",
        "params:encoder",
        "params:recipe",
        "params:seed",
        info="collection_info",
        params="params:evaluation",
    )
    known_by = by_name(
        *_ASKED,
        "runs",
        "knowledge",
        "variants",
        "corpus_encoder",
        "params:encoder",
        "params:recipe",
        "params:dense",
        "params:seed",
        "store",
        trained_model="measured_model",
        params="params:evaluation",
    )
    return [
        node(search.measure_dimensions, cut_by, "dimension_metrics"),
        node(
            nodes.score_runs,
            by_name(*_ASKED, "runs", "params:recipe", params="params:evaluation"),
            "query_metrics",
        ),
        node(
            nodes.describe_hardness,
            ["query_metrics", "queries", "pseudo_queries", "params:evaluation"],
            "hardness_results",
        ),
        node(nodes.bucket_queries, bucketed_by, "query_buckets"),
        node(nodes.compare_systems, compared_by, ["metrics", "comparisons", "metrics_flat"]),
        node(nodes.measure_knowledge, known_by, ["knowledge_metrics", "neighbours"]),
    ]
