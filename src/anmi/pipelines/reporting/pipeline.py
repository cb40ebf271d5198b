"""Wiring of reporting."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.reporting.nodes import collect_results, draw_figures, render_report
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
        Node(
            draw_figures,
            inputs=["results", "selection_summary", "training_log"],
            outputs=["metrics_figure", "funnel_figure", "nearness_figure", "training_figure"],
            name="draw_figures",
        ),
        Node(
            render_report,
            inputs=by_name(
                "results", "training_rows", "training_log", "training_summary", "selection_summary", "cross_encoder",
                "fused_judge", "hardness_results", "knowledge_metrics", "neighbours", "pseudo_query_summary",
                "encoder_info", "params:encoder", "params:recipe", info="collection_info",
            ),
            outputs="report",
            name="render_report",
        ),
    ])  # fmt: skip
