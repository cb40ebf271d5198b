"""The audit's wiring: the truth stays out of the mining, and the main way stays alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.pipeline import Pipeline
from tests.e2e.conftest import write_beir
from tests.pipelines.tables import NONE_RELATED, frame, labels_of

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
    """All datasets that a node sees, directly or through others; not past the node ``stop``."""
    nodes = {node.name: node for node in pipeline.nodes}
    maker = {output: node.name for node in pipeline.nodes for output in node.outputs}
    seen = set(nodes[name].inputs)
    for dataset in nodes[name].inputs:
        if maker.get(dataset, stop) != stop:
            seen |= behind(pipeline, maker[dataset], stop)
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
    planting = "audit.collection.plant_truth"
    for name in {node.name for node in audit.nodes} - {planting}:
        assert not hidden & behind(audit, name, stop=planting), name


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
        planted = {name: f"audit_{name}" for name in ("queries", "qrels")}
        renamed = planted | {"params:recipe": "params:audit_judges_for", "store": "store"}
        for name, audited_name in zip(node.inputs, twin.inputs, strict=True):
            kept = name if name.startswith("params:") else f"audit.{name}"
            assert audited_name == renamed.get(name, kept)


def test_what_an_audit_makes_is_stored_as_in_the_main_way() -> None:
    catalog: dict[str, Any] = {}
    for path in (ROOT / "conf/base").glob("catalog_*.yml"):
        catalog |= yaml.safe_load(path.read_text(encoding="utf-8"))
    twins = {name for name in catalog if name.startswith("audit.")}
    assert len(twins) > 25
    for name in twins:
        # Nobody else hands over what an audit makes.
        entry = catalog[name.removeprefix("audit.")]
        entry.pop("validator", None)
        folder, file = entry["filepath"].rsplit("/", 1)
        assert catalog[name] == entry | {"filepath": f"{folder}/audit.{file}"}, name


def test_an_audit_and_the_main_way_share_only_parameters_and_the_store(
    registered: dict[str, Pipeline],
) -> None:
    shared = registered["audit"].datasets() & registered["__default__"].datasets()
    assert {name for name in shared if not name.startswith("params:")} == {"store"}


def test_what_equivalents_are_made_of_is_not_left_for_judges_to_read(tmp_path: Path) -> None:
    """Entailing documents are planted; the triples that say so are gone from the corpus."""
    facts = {"a": ["x"], "b": ["x", "y"], "c": ["z"]}
    documents = []
    for name, objects in facts.items():
        metadata = {"triples": [["s", "is", fact] for fact in objects], "size": 1}
        documents.append({"_id": name, "text": f"About {name}", "metadata": metadata})
    queries = [{"_id": f"q{name}", "text": f"What of {name}?"} for name in facts]
    splits = {"train": "a", "dev": "b", "test": "c"}
    header = "query-id\tcorpus-id\tscore"
    labels = {split: [header, f"q{name}\t{name}\t1"] for split, name in splits.items()}
    write_beir(tmp_path, documents, queries, labels)
    made = ingest_all(f"beir:{tmp_path}", IngestionParams(max_queries=1), 1)
    assert made["equivalents"].to_numpy().tolist() == [["qa", "b"]]
    assert not made["corpus"].metadata.str.contains("triples").any()
    assert [json.loads(text)["size"] for text in made["corpus"].metadata] == [1, 1, 1]
    assert facts_of(made["corpus"], made["knowledge"].graph) is None


def test_where_nothing_can_be_planted_an_audit_ends_and_a_retraining_goes_on() -> None:
    tables = {
        "queries": frame("query_id text split", ("q", "?", "train")),
        "qrels": labels_of("q a"),
        "equivalents": frame("query_id document_id"),
        "related_documents": NONE_RELATED,
    }
    with pytest.raises(AnmiError, match="there is no truth to plant"):
        plant_truth(**tables, params=AuditParams(), judges_for=RecipeBook.every, seed=1)
    planted = plant_truth(**tables, params=AuditParams(), judges_for="anmi", seed=1)
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
    rates = {"false_negative_rate_low": 0.0, "false_negative_rate_high": 1.0}
    counts = {"false_negatives": 1, "negatives": 9, "setting": "", "failed": ""}
    leaks = [("clean", 0.01), ("dirty", 0.2)]
    recipes = frame("recipe false_negative_rate", *leaks, **rates, **counts)
    gate(recipes, {}, "dirty", AuditParams())
    gate(recipes, {}, "clean", AuditParams(max_false_negative_rate=0.1))
    gate(recipes, {}, "dirty", AuditParams(max_false_negative_rate=0.1, recipe="clean"))
    with pytest.raises(AnmiError, match=r'"dirty" has 20\.00% false negatives'):
        gate(recipes, {}, "dirty", AuditParams(max_false_negative_rate=0.1))
