"""Wiring of the audit: the collection with truth planted goes through the stages of mining, then it is scored."""

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
_TRUTH: Final = "planted_truth"
FINDINGS: Final = ("audit_recipes", "audit_judges", "audit_summary")


def create_pipeline() -> Pipeline:
    """Return the pipeline.

    It shares parameters and the store with the main way and nothing else, so an audit of another
    collection never comes between two stages of mining. What the stages make goes under ``audit.``;
    the planted collection, the truth and the findings have names of their own.
    """
    whole = Pipeline([_collection(), _mining(), _scoring()])
    parameters = {name for name in whole.inputs() if name.startswith("params:")}
    return Pipeline(
        whole,
        namespace=NAMESPACE,
        inputs=set(whole.inputs() - parameters),
        outputs={*_AUDITED.values(), _TRUTH, *FINDINGS},
        parameters=parameters,
    )


def _collection() -> Pipeline:
    read = ingestion.create_pipeline().only_nodes("ingestion.ingest").outputs()
    return stage(
        "collection",
        [
            node(
                ingest_all,
                [
                    "params:collection",
                    "params:ingestion",
                    "params:seed",
                ],
                {name: name for name in sorted(read)},
                name="ingest",
            ),
            node(
                plant_truth,
                by_name(
                    "queries",
                    "qrels",
                    "equivalents",
                    "related_documents",
                    "params:audit_judges_for",
                    "params:seed",
                    params="params:audit",
                ),
                [*_AUDITED.values(), _TRUTH],
            ),
        ],
    )


def _mining() -> Pipeline:
    """Return the stages of mining as they are, on the audited queries and labels, judging for all recipes at once."""
    checked = consistency.create_pipeline().only_nodes("consistency.check_consistency")
    asked = Pipeline(
        [node for node in dense.create_pipeline().nodes if node.name != "dense.retrieve_dev"]
    )
    stages = Pipeline(
        [checked, asked, *(stage.create_pipeline() for stage in (bm25, denoising, elo))]
    )
    return Pipeline(
        stages, inputs=_AUDITED, parameters={"params:recipe": "params:audit_judges_for"}
    )


def _scoring() -> Pipeline:
    recipes, _, summary = FINDINGS
    return stage(
        "scoring",
        [
            node(
                audit_recipes,
                by_name(
                    *STAGE_COLUMNS,
                    "corpus",
                    "params:recipes",
                    "params:encoder",
                    "params:seed",
                    truth=_TRUTH,
                    info="collection_info",
                    params="params:audit",
                ),
                [*FINDINGS],
            ),
            node(
                gate,
                by_name("params:recipe", recipes=recipes, summary=summary, params="params:audit"),
                None,
            ),
        ],
    )
