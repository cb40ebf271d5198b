"""Wiring of reporting."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.reporting.nodes import (
    collect_results,
    draw_metrics,
    draw_selection,
    draw_training,
    render_report,
)
from anmi.pipelines.wiring import by_name, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage("reporting", [
        Node(
            collect_results,
            inputs=by_name(
                "metrics", "comparisons", "training_summary", "selection_summary", "equivalents", "queries", "qrels",
                "params:evaluation", "search_index", drawn="drawn_negatives", info="collection_info",
            ),
            outputs="results",
            name="collect_results",
        ),
        Node(draw_metrics, inputs="results", outputs="metrics_figure", name="draw_metrics"),
        Node(
            draw_selection,
            inputs="selection_summary",
            outputs=["funnel_figure", "nearness_figure"],
            name="draw_selection",
        ),
        Node(draw_training, inputs="training_log", outputs="training_figure", name="draw_training"),
        Node(
            render_report,
            inputs=by_name(
                "results", "training_rows", "training_log", "training_summary", "selection_summary", "cross_encoder",
                "fused_judge", "hardness_results", "knowledge_metrics", "neighbours", "pseudo_query_summary",
                "sparse_terms", "encoder_info", "params:encoder", "params:recipe",
                "selection", "corpus", "queries", "qrels", "pseudo_queries", "query_metrics", "query_buckets", "runs",
                "params:evaluation", "node_times", info="collection_info", params="params:reporting",
            ),
            outputs="report",
            name="render_report",
        ),
    ])  # fmt: skip
