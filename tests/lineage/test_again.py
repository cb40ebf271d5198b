"""What is left to do of a run that did not end: never too little, and nothing twice without need."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kedro.pipeline import Node, Pipeline

from anmi.lineage.again import rest_of
from anmi.lineage.changes import changes


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
        "parameters": {"bm25": {"k1": 0.9}, "steps": [{"top": 1}]},
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
        "parameters": {"bm25": {"k1": 1.2}, "steps": [{"top": 1}]},
    }
    assert changes(before, now) == {
        "collection": "x/corpus.jsonl changed (10 to 12 bytes), x/gone is gone",
        "parameters": "bm25.k1 is 1.2 (was 0.9)",
        "code": f"commit {'b' * 10} (was {'a' * 10})",
        "packages": "numpy is 2 (was 1), old is not installed (was 1)",
    }
    assert changes(before, before) == {}
