"""Stages fold and can be asked for, and a node is still called by its own name."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.io import DataCatalog, MemoryDataset
from kedro.pipeline import Node, Pipeline
from kedro.runner import SequentialRunner

from anmi.pipeline_registry import STAGES
from anmi.pipelines.wiring import StageNode, stage


@pytest.fixture(scope="module")
def registered(project: Path) -> dict[str, Pipeline]:
    bootstrap_project(project)
    return dict(pipelines)


def chain() -> Pipeline:
    first = stage(
        "first", [Node(lambda x: x + 1, "a", "b", name="add"), Node(lambda x: 2 * x, "b", "c", name="double")]
    )
    return first + stage("second", [Node(lambda x: -x, "c", "d", name="negate")])


def test_datasets_and_nodes_are_called_as_they_are() -> None:
    made = chain()
    assert [node.name for node in made.nodes] == ["add", "double", "negate"]
    assert made.datasets() == {"a", "b", "c", "d"}
    run = SequentialRunner().run(made, DataCatalog({"a": MemoryDataset(1)}))
    assert run["d"].load() == -4


@pytest.mark.parametrize("copy", [
    lambda made: Pipeline(made, tags="nightly"),
    lambda made: Pipeline(made, inputs={"a": "another"}),
    lambda made: made + Pipeline([]),
    lambda made: made.from_nodes("add"),
], ids=["tagged", "mapped", "added", "cut"])  # fmt: skip
def test_copies_keep_names_and_stages(copy) -> None:
    found = copy(chain())
    assert [(node.name, node.namespace) for node in found.nodes] == [
        ("add", "first"), ("double", "first"), ("negate", "second"),
    ]  # fmt: skip
    assert {type(node) for node in found.nodes} == {StageNode}


def test_a_stage_within_a_namespace_is_told_by_that_one() -> None:
    found = Pipeline(chain(), namespace="audit")
    assert [node.name for node in found.nodes] == ["audit.add", "audit.double", "audit.negate"]
    assert [node.namespace for node in found.nodes] == ["audit.first", "audit.first", "audit.second"]
    assert found.datasets() == {"audit.a", "audit.b", "audit.c", "audit.d"}


def test_kedro_runs_and_groups_by_stage() -> None:
    made = chain()
    assert [node.name for node in made.filter(node_namespaces=["first"]).nodes] == ["add", "double"]
    groups = {group.name: (group.nodes, group.dependencies) for group in made.group_nodes_by("namespace")}
    assert groups == {"first": (["add", "double"], []), "second": (["negate"], ["first"])}


@pytest.mark.filterwarnings("error")
def test_every_node_of_a_stage_is_in_its_namespace(registered: dict[str, Pipeline]) -> None:
    whole = registered["__default__"]
    for name in STAGES:
        names = {node.name for node in registered[name].nodes}
        assert {node.name for node in whole.only_nodes_with_namespaces([name]).nodes} == names
        # Raises where a stage is left and entered again, which could be neither folded nor run as one.
        Pipeline(whole.nodes)


def test_every_node_says_what_it_does(registered: dict[str, Pipeline]) -> None:
    nodes = {node for pipeline in registered.values() for node in pipeline.nodes}
    assert len(nodes) > 50
    for node in nodes:
        assert isinstance(node, StageNode), node.name
        told = node.preview().to_dict()
        assert told["kind"] == "text"
        first = inspect.getdoc(node.func)
        assert first is not None, node.name
        assert told["content"].split(".")[0] == first.replace("``", "`").split(".")[0]
