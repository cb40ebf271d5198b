"""Wiring of reporting."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.reporting.nodes import collect_results, draw_metrics, render_report


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            collect_results,
            inputs=[
                "metrics", "comparisons", "training_summary", "selection_summary", "drawn_negatives", "equivalents",
                "qrels", "collection_info",
            ],
            outputs="results",
            name="collect_results",
        ),
        Node(draw_metrics, inputs="results", outputs="metrics_figure", name="draw_metrics"),
        Node(
            render_report,
            inputs=[
                "results", "training_rows", "training_log", "training_summary", "selection_summary", "teacher",
                "fused_judge", "hardness_results", "knowledge_metrics", "neighbours", "collection_info",
                "encoder_info", "params:encoder", "params:recipe", "params:reporting",
            ],
            outputs="report",
            name="render_report",
        ),
    ])  # fmt: skip
