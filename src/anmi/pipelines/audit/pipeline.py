"""Wiring of the audit: a collection with truth planted goes through mining, then it is scored."""

from __future__ import annotations

from typing import Final

from kedro.pipeline import Pipeline

from anmi.pipelines.audit.nodes import audit_recipes, gate, ingest_all, plant_truth
from anmi.pipelines.bm25 import pipeline as bm25
from anmi.pipelines.consistency import pipeline as consistency
from anmi.pipelines.denoising import pipeline as denoising
from anmi.pipelines.dense import pipeline as dense
from anmi.pipelines.elo import pipeline as elo
from anmi.pipelines.ingestion import pipeline as ingestion
from anmi.pipelines.wiring import by_name, node, stage
from anmi.selection.recipe import STAGE_COLUMNS

NAMESPACE: Final = "audit"
_AUDITED: Final = {"queries": "audit_queries", "qrels": "audit_qrels"}
_JUDGES_FOR: Final = "params:audit_judges_for"
_TRUTH: Final = "planted_truth"
FINDINGS: Final = ("audit_recipes", "audit_judges", "audit_summary")
SCORED_BY: Final = by_name(
    *STAGE_COLUMNS,
    "corpus",
    "params:recipes",
    "params:encoder",
    "params:seed",
    truth=_TRUTH,
    info="collection_info",
    params="params:audit",
)


def create_pipeline(judges_for: str = _JUDGES_FOR, *, scored: bool = True) -> Pipeline:
    """Return the pipeline, which judges for the recipe that a parameter names, or for all.

    It shares parameters and the store with the main way and nothing else, so an audit of another
    collection never comes between two stages of mining. What the stages make goes under ``audit.``;
    the planted collection, the truth and the findings have names of their own.
    """
    stages = [_collection(judges_for), _mining(judges_for)]
    outputs = {*_AUDITED.values(), _TRUTH}
    if scored:
        stages.append(_scoring())
        outputs |= {*FINDINGS}
    whole = Pipeline(stages)
    parameters = {name for name in whole.inputs() if name.startswith("params:")}
    return Pipeline(
        whole,
        namespace=NAMESPACE,
        inputs=whole.inputs() - parameters,
        outputs=outputs,
        parameters=parameters,
    )


def _collection(judges_for: str) -> Pipeline:
    ingested = ingestion.create_pipeline().outputs()
    planted_from = by_name(
        "queries",
        "qrels",
        "equivalents",
        "related_documents",
        "params:seed",
        params="params:audit",
        judges_for=judges_for,
    )
    return stage(
        "collection",
        [
            node(
                ingest_all,
                ["params:collection", "params:ingestion", "params:seed"],
                by_name(*sorted(ingested)),
                name="ingest",
            ),
            node(plant_truth, planted_from, [*_AUDITED.values(), _TRUTH]),
        ],
    )


def _mining(judges_for: str) -> Pipeline:
    """Return the stages of mining on the audited queries and labels.

    Retrieval is for all recipes, since hardness is measured by the encoder, whichever the recipe
    reads.
    """
    retrieving = dense.create_pipeline().to_outputs("candidates")
    judging = [stage.create_pipeline() for stage in (bm25, denoising, elo)]
    judging.append(consistency.create_pipeline().to_outputs("consistency"))
    stages = [
        Pipeline(retrieving, parameters={"params:recipe": _JUDGES_FOR}),
        Pipeline(judging, parameters={"params:recipe": judges_for}),
    ]
    return Pipeline(stages, inputs=_AUDITED)


def _scoring() -> Pipeline:
    recipes, _, summary = FINDINGS
    return stage(
        "scoring",
        [
            node(audit_recipes, SCORED_BY, [*FINDINGS]),
            node(gate, [recipes, summary, "params:recipe", "params:audit"], None),
        ],
    )
