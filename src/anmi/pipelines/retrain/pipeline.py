"""Wiring of retraining: what comes before and after the stages of ``__default__`` and the audit."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.audit.nodes import audit_recipes
from anmi.pipelines.audit.pipeline import FINDINGS, NAMESPACE
from anmi.pipelines.retrain import nodes
from anmi.pipelines.wiring import by_name, node, stage
from anmi.selection.recipe import STAGE_COLUMNS

# Made for all recipes as in an audit, which measures hardness by the encoder whatever the recipe
# reads.
_RETRIEVING: Final = {f"{NAMESPACE}.dense.encode_collection", f"{NAMESPACE}.dense.retrieve"}


def create_pipeline() -> Pipeline:
    """Return the pipeline without the stages that it shares with others; see :func:`with_stages`."""
    champion = stage(
        "champion",
        [
            node(
                nodes.evaluate_champion,
                by_name(
                    "corpus",
                    "queries",
                    "qrels",
                    "params:collection",
                    "params:evaluation",
                    "params:dense",
                    params="params:retrain",
                    registry="model_registry",
                ),
                ["champion", "champion_profile", "champion_runs"],
            ),
        ],
    )
    return champion + stage(
        "retrain",
        [
            # Two nodes: of one, layers would come round in a circle, of which Kedro-Viz draws none.
            node(
                nodes.profile_training_data,
                by_name(
                    "queries",
                    "corpus",
                    "qrels",
                    "selection",
                    "selection_summary",
                    "encoder_info",
                    info="collection_info",
                ),
                "training_profile",
            ),
            node(nodes.measure_drift, ["training_profile", "champion_profile"], "drift"),
            # Not of the stage before, which would then come both before training and after it.
            node(
                nodes.score_champion,
                by_name(
                    "champion",
                    "part_runs",
                    "corpus",
                    "queries",
                    "qrels",
                    "params:evaluation",
                    runs="champion_runs",
                    params="params:retrain",
                ),
                "champion_metrics",
            ),
            node(
                nodes.decide_promotion,
                by_name(
                    "champion",
                    "champion_metrics",
                    "query_metrics",
                    "query_buckets",
                    "equivalents",
                    "qrels",
                    "measured_model",
                    "params:recipe",
                    "params:recipes",
                    "params:training",
                    "params:evaluation",
                    "params:seed",
                    audited="audit_recipes",
                    drawn="drawn_negatives",
                    params="params:retrain",
                ),
                "promotion",
            ),
            node(
                nodes.register_challenger,
                by_name(
                    "trained_model",
                    "measured_model",
                    "promotion",
                    "champion",
                    "training_profile",
                    "params:encoder",
                    "params:recipe",
                    "params:dense",
                    "search_index",
                    "measured_search",
                    info="collection_info",
                    registry="model_registry",
                ),
                "registration",
            ),
            node(
                nodes.report_retraining,
                ["report", "registration", "drift", "audit_recipes"],
                "retrain_report",
            ),
        ],
    )


def with_stages(way: Pipeline, audit: Pipeline) -> Pipeline:
    """Return the whole of retraining: all stages, and the audit of the recipe trained with.

    The audit's scoring stands for itself and without its gate, which would fail a run that the rule
    ends by keeping the champion. Within the audit's own stages it would make them, as one folded
    box, come both before training and after it, and Kedro-Viz draws no layers of a pipeline that
    comes round in a circle.
    """
    mining = [node for node in audit.nodes if node.namespace != f"{NAMESPACE}.scoring"]
    judging = [node for node in mining if node.name not in _RETRIEVING]
    measured = Node(
        audit_recipes,
        by_name(
            "params:recipes",
            "params:recipe",
            "params:encoder",
            "params:seed",
            truth="planted_truth",
            info=f"{NAMESPACE}.collection_info",
            params="params:audit",
            **{name: f"{NAMESPACE}.{name}" for name in (*STAGE_COLUMNS, "corpus")},
        ),
        [*FINDINGS],
        name="audit_recipes",
        namespace="scoring",
    )
    retrieving = [node for node in mining if node.name in _RETRIEVING]
    judged = Pipeline(judging, parameters={"params:audit_judges_for": "params:recipe"})
    return way + judged + Pipeline([*retrieving, measured]) + create_pipeline()
