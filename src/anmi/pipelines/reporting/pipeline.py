"""Wiring of reporting."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.reporting.nodes import collect_results, draw_figures, render_report
from anmi.pipelines.wiring import by_name, node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    collected_from = by_name(
        "metrics",
        "comparisons",
        "training_summary",
        "selection_summary",
        "drawn_negatives",
        "equivalents",
        "queries",
        "qrels",
        "params:evaluation",
        "measured_search",
        "part_milliseconds",
        "cross_encoder",
        final_choice="final.choice",
        final_metrics="final.metrics",
        info="collection_info",
    )
    rendered_from = by_name(
        "results",
        "training_rows",
        "training_log",
        "training_summary",
        "selection_summary",
        "cross_encoder",
        "fused_judge",
        "llm_judge",
        "hardness_results",
        "dimension_metrics",
        "knowledge_metrics",
        "neighbours",
        "latent_neighbours",
        "pseudo_query_summary",
        "encoder_info",
        "collection_info",
        "params:encoder",
        "params:recipe",
    )
    figures = ["metrics_figure", "funnel_figure", "nearness_figure", "training_figure"]
    return stage(
        "reporting",
        [
            node(collect_results, collected_from, "results"),
            node(draw_figures, ["results", "selection_summary", "training_log"], figures),
            node(render_report, rendered_from, "report"),
        ],
    )
