"""Wiring of retraining: what comes before and after the stages of ``__default__`` and the audit."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.audit.nodes import audit_recipes
from anmi.pipelines.audit.pipeline import FINDINGS, NAMESPACE, SCORED_BY
from anmi.pipelines.retrain import nodes
from anmi.pipelines.wiring import by_name, node, stage
from anmi.selection.recipe import STAGE_COLUMNS

_COLLECTION: Final = ("corpus", "queries", "qrels", "params:evaluation")
_UNDER_AUDIT: Final = {
    argument: f"{NAMESPACE}.{dataset}"
    for argument, dataset in SCORED_BY.items()
    if dataset in (*STAGE_COLUMNS, "corpus", "collection_info")
}


def create_pipeline() -> Pipeline:
    """Return what comes besides all stages and an audit of the recipe that is not scored.

    The audit's scoring stands for itself and without its gate, which would fail a run that the rule
    ends by keeping the champion. Within the audit's own stages it would make them, as one folded
    box, come both before training and after it, and Kedro-Viz draws no layers of a pipeline that
    comes round in a circle. The champion's stage is apart for the same reason.
    """
    champion = node(
        nodes.evaluate_champion,
        by_name(
            *_COLLECTION,
            "params:collection",
            "params:dense",
            "store",
            params="params:retrain",
            registry="model_registry",
        ),
        ["champion", "champion_profile", "champion_runs"],
    )
    scored_by = SCORED_BY | _UNDER_AUDIT | by_name("params:recipe")
    scored = node(audit_recipes, scored_by, [*FINDINGS])
    return (
        stage("champion", [champion])
        + stage("scoring", [scored])
        + stage("retrain", [*_compared(), *_promoted()])
    )


def _compared() -> list[Node]:
    profiled_from = by_name(
        "queries",
        "corpus",
        "qrels",
        "selection",
        "selection_summary",
        "encoder_info",
        info="collection_info",
    )
    scored_by = by_name(
        *_COLLECTION, "champion", "part_runs", runs="champion_runs", params="params:retrain"
    )
    return [
        # Two nodes: of one, layers would come round in a circle, of which Kedro-Viz draws none.
        node(nodes.profile_training_data, profiled_from, "training_profile"),
        node(nodes.measure_drift, ["training_profile", "champion_profile"], "drift"),
        node(nodes.score_champion, scored_by, "champion_metrics"),
    ]


def _promoted() -> list[Node]:
    decided_by = by_name(
        "champion",
        "champion_metrics",
        "query_metrics",
        "query_buckets",
        "equivalents",
        "qrels",
        "measured_model",
        "audit_recipes",
        "drawn_negatives",
        "params:recipe",
        "params:recipes",
        "params:training",
        "params:evaluation",
        "params:seed",
        params="params:retrain",
    )
    registered_from = by_name(
        "trained_model",
        "measured_model",
        "promotion",
        "champion",
        "training_profile",
        "search_index",
        "measured_search",
        "params:encoder",
        "params:recipe",
        "params:dense",
        info="collection_info",
        registry="model_registry",
    )
    return [
        node(nodes.decide_promotion, decided_by, "promotion"),
        node(nodes.register_challenger, registered_from, "registration"),
        node(
            nodes.report_retraining,
            ["report", "registration", "drift", "audit_recipes"],
            "retrain_report",
        ),
    ]
