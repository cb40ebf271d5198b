"""What the audit's wiring promises: the truth stays out of the mining, and the main way stays alone."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.pipeline import Pipeline
from tests.e2e.conftest import write_beir

from anmi.candidates import CandidateShards
from anmi.errors import AnmiError
from anmi.judging.evidence import facts_of
from anmi.pipeline_registry import STAGES
from anmi.pipelines.audit.nodes import audit_recipes, gate, ingest_all, plant_truth
from anmi.pipelines.params import AuditParams, IngestionParams
from anmi.selection.recipe import RecipeBook

ROOT = Path(__file__).parents[2]
MINING = ("bm25", "consistency", "dense", "denoising", "elo")
SCORING = {"audit_recipes", "gate"}


@pytest.fixture(scope="module")
def registered() -> dict[str, Pipeline]:
    bootstrap_project(ROOT)
    return {name: pipelines[name] for name in (*STAGES, "audit", "__default__")}


def behind(pipeline: Pipeline, name: str, stop: str = "") -> set[str]:
    """All datasets that a node sees, directly or through what others made of them; not past the node ``stop``."""
    maker = {output: node for node in pipeline.nodes for output in node.outputs}
    (start,) = [node for node in pipeline.nodes if node.name == name]
    seen: set[str] = set()
    open_ = list(start.inputs)
    while open_:
        dataset = open_.pop()
        if dataset not in seen:
            seen.add(dataset)
            if dataset in maker and maker[dataset].name != stop:
                open_ += maker[dataset].inputs
    return seen


def test_only_scoring_ever_sees_the_planted_truth(registered: dict[str, Pipeline]) -> None:
    audit = registered["audit"]
    seers = {node.name for node in audit.nodes if "planted_truth" in behind(audit, node.name)}
    assert seers == {f"audit.scoring.{name}" for name in SCORING}
    of_scoring = {output for node in audit.nodes if node.name in seers for output in node.outputs}
    others = [node for node in audit.nodes if node.name not in seers]
    assert not [node.name for node in others if of_scoring & set(node.inputs)]


def test_judges_and_recipes_see_of_the_labels_only_what_planting_left(
    registered: dict[str, Pipeline],
) -> None:
    """Past ``plant_truth`` nobody reads all labels, all queries, or the equivalents."""
    audit = registered["audit"]
    hidden = {"audit.qrels", "audit.queries", "audit.equivalents"}
    for node in audit.nodes:
        if node.name != "audit.collection.plant_truth":
            assert not hidden & behind(audit, node.name, stop="audit.collection.plant_truth"), (
                node.name
            )


def test_the_stages_of_mining_are_audited_as_they_are(registered: dict[str, Pipeline]) -> None:
    audited = {node.name: node for node in registered["audit"].nodes}
    # What the filter did to queries is told of a mining, not of an audit, which has no dev queries
    # either.
    nodes = {node.name: node for stage in MINING for node in registered[stage].nodes}
    for name in ("consistency.summarise_consistency", "dense.retrieve_dev"):
        assert f"audit.{nodes.pop(name).name}" not in audited
    for node in nodes.values():
        twin = audited[f"audit.{node.name}"]
        assert twin.func is node.func
        for own, other in zip(node.inputs, twin.inputs, strict=True):
            if own == "params:recipe":
                assert other == "params:audit_judges_for"
            elif own in ("queries", "qrels"):
                assert other == f"audit_{own}"
            else:
                assert other == (
                    own if own.startswith("params:") or own == "store" else f"audit.{own}"
                )


def test_an_audit_and_the_main_way_share_only_parameters_and_the_store(
    registered: dict[str, Pipeline],
) -> None:
    shared = registered["audit"].datasets() & registered["__default__"].datasets()
    assert {name for name in shared if not name.startswith("params:")} == {"store"}


def test_what_equivalents_are_made_of_is_not_left_for_judges_to_read(tmp_path: Path) -> None:
    """Entailing documents are planted; the triples that say so are gone from the corpus."""
    facts = {"a": ["x"], "b": ["x", "y"], "c": ["z"]}
    documents = [
        {
            "_id": name,
            "text": f"About {name}",
            "metadata": {"triples": [["s", "is", f] for f in held], "size": 1},
        }
        for name, held in facts.items()
    ]
    queries = [{"_id": f"q{name}", "text": f"What of {name}?"} for name in facts]
    splits = (("train", "a"), ("dev", "b"), ("test", "c"))
    labels = {
        split: ["query-id\tcorpus-id\tscore", f"q{name}\t{name}\t1"] for split, name in splits
    }
    write_beir(tmp_path, documents, queries, labels)
    made = ingest_all(f"beir:{tmp_path}", IngestionParams(max_queries=1), 1)
    assert made["equivalents"].to_numpy().tolist() == [["qa", "b"]]
    assert not made["corpus"].metadata.str.contains("triples").any()
    assert [json.loads(text)["size"] for text in made["corpus"].metadata] == [1, 1, 1]
    assert facts_of(made["corpus"], made["knowledge"].graph) is None


def test_where_nothing_can_be_planted_an_audit_ends_and_a_retraining_goes_on() -> None:
    tables = {
        "queries": pd.DataFrame({"query_id": ["q"], "text": ["?"], "split": ["train"]}),
        "qrels": pd.DataFrame({"query_id": ["q"], "document_id": ["a"], "relevance": 1}),
        "equivalents": pd.DataFrame({"query_id": [], "document_id": []}),
        "related_documents": pd.DataFrame({"document_id": [], "other_id": [], "kind": []}),
    }
    with pytest.raises(AnmiError, match="there is no truth to plant"):
        plant_truth(**tables, params=AuditParams(), audit_judges_for=RecipeBook.every, seed=1)
    planted = plant_truth(**tables, params=AuditParams(), audit_judges_for="anmi", seed=1)
    assert [len(table) for table in planted] == [0, 0, 0]
    recipes, judges, summary = audit_recipes(
        CandidateShards.of([]),
        truth=planted[2],
        corpus=pd.DataFrame({"document_id": ["a"]}),
        info={"collection": "mine"},
        recipes=RecipeBook(),
        encoder="static",
        params=AuditParams(),
        seed=1,
        recipe="anmi",
    )
    assert recipes.empty and judges.empty and summary["collection"] == "mine"


def test_without_a_limit_nothing_is_refused_and_the_run_s_own_recipe_is_the_default() -> None:
    recipes = pd.DataFrame(
        [
            {
                "recipe": name,
                "false_negative_rate": leak,
                "false_negative_rate_low": 0.0,
                "false_negative_rate_high": 1.0,
                "false_negatives": 1,
                "negatives": 9,
                "setting": "",
                "failed": "",
            }
            for name, leak in (("clean", 0.01), ("dirty", 0.2))
        ]
    )
    gate(recipes, {}, recipe="dirty", params=AuditParams())
    gate(recipes, {}, recipe="clean", params=AuditParams(max_false_negative_rate=0.1))
    gate(
        recipes, {}, recipe="dirty", params=AuditParams(max_false_negative_rate=0.1, recipe="clean")
    )
    with pytest.raises(AnmiError, match=r'"dirty" has 20\.00% false negatives'):
        gate(recipes, {}, recipe="dirty", params=AuditParams(max_false_negative_rate=0.1))
