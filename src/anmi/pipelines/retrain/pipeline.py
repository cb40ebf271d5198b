"""Wiring of retraining: what comes before and after the stages of ``__default__`` and the audit."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.audit.pipeline import NAMESPACE
from anmi.pipelines.retrain.drift import measure_drift, profile_training_data, render_drift
from anmi.pipelines.retrain.nodes import (
    audit_recipe,
    decide_promotion,
    evaluate_champion,
    register_challenger,
    score_champion,
)
from anmi.pipelines.selection.pipeline import RATED

# Of an audit what is about one recipe stands in the place of what is about all of them; its gate would fail a run that
# the rule ends by keeping the champion.
_REPLACED: Final = {f"{NAMESPACE}.audit_recipes", f"{NAMESPACE}.gate"}


def create_pipeline() -> Pipeline:
    """Return the pipeline without the stages that it shares with others; see :func:`with_stages`."""
    return Pipeline([
        Node(
            evaluate_champion,
            inputs=[
                "corpus", "queries", "qrels", "params:collection", "params:retrain", "params:evaluation",
                "params:dense", "model_registry",
            ],
            outputs=["champion", "champion_profile", "champion_runs"],
            name="evaluate_champion",
        ),
        Node(
            score_champion,
            inputs=["champion_runs", "queries", "qrels", "params:evaluation"],
            outputs="champion_metrics",
            name="score_champion",
        ),
        Node(
            profile_training_data,
            inputs=[
                "queries", "corpus", "qrels", "duplicates", "kin", "selection", "selection_summary", "encoder_info",
                "collection_info", "params:drift",
            ],
            outputs="training_profile",
            name="profile_training_data",
        ),
        Node(
            measure_drift,
            inputs=["training_profile", "champion_profile", "params:drift"],
            outputs="drift",
            name="measure_drift",
        ),
        Node(
            render_drift,
            inputs=["drift", "training_profile", "champion_profile"],
            outputs="drift_report",
            name="render_drift",
        ),
        Node(
            decide_promotion,
            inputs=[
                "champion", "champion_metrics", "query_metrics", "audit_recipes", "drawn_negatives", "equivalents",
                "qrels", "trained_model", "params:recipe", "params:recipes", "params:training", "params:retrain",
                "params:evaluation", "params:seed",
            ],
            outputs="promotion",
            name="decide_promotion",
        ),
        Node(
            register_challenger,
            inputs=[
                "trained_model", "promotion", "champion", "training_profile", "collection_info", "params:encoder",
                "params:recipe", "params:dense", "model_registry", "training_summary",
            ],
            outputs="registration",
            name="register_challenger",
        ),
    ])  # fmt: skip


def with_stages(way: Pipeline, audit: Pipeline) -> Pipeline:
    """Return the whole of retraining: all stages, and the audit of the recipe trained with."""
    kept = Pipeline([node for node in audit.nodes if node.name not in _REPLACED])
    mine = Pipeline(kept, parameters={"params:audit_judges_for": "params:recipe"})
    measured = Node(
        audit_recipe,
        inputs={
            **{name: f"{NAMESPACE}.{name}" for name in (*RATED, "corpus")},
            **{name: f"params:{name}" for name in ("recipes", "recipe", "training", "seed")},
            "truth": "planted_truth", "queries": "audit_queries", "info": f"{NAMESPACE}.collection_info",
            "training_log": "training_log",
        },
        outputs="audit_recipes",
        name="audit_recipes",
        namespace=NAMESPACE,
    )  # fmt: skip
    mapped = {f"params:{name}": f"params:retrain.{name}" for name in ("keep_judges", "update")}
    stages = Pipeline(way + mine, parameters=mapped)
    return stages + Pipeline([measured]) + create_pipeline()
