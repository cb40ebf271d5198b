"""What is left to do of a run that did not end: never too little, and nothing twice without need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kedro.pipeline import Node, Pipeline

from anmi.runs.again import absent, rest_of
from anmi.runs.manifests import versions_of
from anmi.runs.origin import changes
from anmi.runs.replay import Replay, configure, replaying


def nothing(*_: Any) -> None:
    return None


NODES = Pipeline(
    [
        Node(nothing, "params:x", ["a", "a2"], name="one"),
        Node(nothing, "a", "b", name="two"),
        Node(nothing, ["b", "a2"], "c", name="three"),
        Node(nothing, "c", None, name="tell"),
        Node(nothing, ["c", "outside"], "d", name="four"),
    ]
)
ARTIFACTS = ("a", "a2", "b", "c", "d")


@given(st.sets(st.sampled_from(ARTIFACTS)), st.sets(st.sampled_from(ARTIFACTS)))
def test_whatever_was_saved_the_rest_can_run_and_makes_what_is_missing(saved: set[str], lost: set[str]) -> None:
    manifest = {"saved": dict.fromkeys(saved, "r1"), "inputs": {"outside": "r0"}}
    rest = rest_of(NODES, manifest, lambda name, version: version == "r1" and name not in lost)
    there = saved - lost
    made = {name for node in NODES.nodes if node.name in rest.nodes for name in node.outputs}
    assert made | rest.reused.keys() >= set(ARTIFACTS) - (there - rest.reused.keys())
    for node in NODES.nodes:
        if node.name in rest.nodes:
            needed = {name for name in node.inputs if not name.startswith("params:")} - made
            assert needed <= rest.load_versions.keys()
        else:
            assert set(node.outputs) <= there
    assert not made & rest.load_versions.keys(), "what is made anew is not loaded from before"
    assert "tell" in rest.nodes, "a node that makes nothing runs again"
    assert rest.load_versions.get("outside", "r0") == "r0"


def test_a_node_of_which_only_half_was_saved_runs_again() -> None:
    rest = rest_of(NODES, {"saved": {"a": "r1", "b": "r1"}}, lambda *_: True)
    assert rest.nodes[0] == "one"
    assert "two" not in rest.nodes, "its result is there and would be the same"
    assert rest.load_versions["b"] == "r1"


def test_differences_are_told_in_words() -> None:
    files = [{"path": "x/corpus.jsonl", "bytes": 10, "digest": "a"}, {"path": "x/gone", "bytes": 1, "digest": "c"}]
    before = {
        "collection": {"name": "beir:x", "digest": "1", "files": files},
        "code": "c1",
        "git": {"commit": "a" * 40},
        "versions": {"numpy": "1", "old": "1"},
        "parameters": {"bm25": {"k1": 0.9}, "steps": {"top": 1}},
    }
    now = {
        "collection": {
            "name": "beir:x",
            "digest": "2",
            "files": [{"path": "x/corpus.jsonl", "bytes": 12, "digest": "b"}],
        },
        "code": "c2",
        "git": {"commit": "b" * 40},
        "versions": {"numpy": "2"},
        "parameters": {"bm25": {"k1": 1.2}, "steps": {"top": 1}},
    }
    assert changes(before, now) == {
        "collection": "x/corpus.jsonl changed (10 to 12 bytes), x/gone is gone",
        "parameters": "bm25.k1 is 1.2 (was 0.9)",
        "code": f"commit {'b' * 10} (was {'a' * 10})",
        "packages": "numpy is 2 (was 1), old is not installed (was 1)",
    }
    assert changes(before, before) == {}


@pytest.mark.parametrize("data", [None, "s3://bucket/again"])
def test_a_replay_puts_what_it_makes_elsewhere_and_finds_nothing_where_nothing_was(data: str | None) -> None:
    loader: dict[str, Any] = {
        "globals": {"data": "s3://bucket/data", "seed": 1},
        "parameters": {"seed": 9},
        "catalog": {name: {"filepath": f"s3://bucket/data/x/{name}"} for name in ("made", "read", "earlier")},
        "mlflow": {"enabled": True},
    }
    manifest = {"inputs": {"read": "v1", "earlier": None}, "saved": {"made": "v2"}}
    made = frozenset({"made"}) if data else frozenset()
    context: Any = SimpleNamespace(config_loader=loader)
    with replaying(Replay({"seed": 3}, data=data, made=made, absent=absent(manifest), tracked=not data)):
        configure(context)
    places = {name: entry["filepath"] for name, entry in loader["catalog"].items()}
    assert places["read"] == "s3://bucket/data/x/read"
    assert places["made"] == (f"{data}/x/made" if data else "s3://bucket/data/x/made")
    assert places["earlier"] == "s3://bucket/data/runs/nothing/earlier"
    assert loader["globals"] == {"data": data or "s3://bucket/data", "seed": 1}
    assert loader["parameters"] == {"seed": 3}
    assert loader["mlflow"] == {"enabled": data is None}
    assert versions_of(manifest) == {"read": "v1", "made": "v2"}
    configure(context)
    assert loader["parameters"] == {"seed": 3}, "outside of it nothing is put anywhere"
