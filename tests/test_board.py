"""benchmarks/board: what a miner gets hides what the score knows, and the score counts it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from anmi.errors import AnmiError

ROOT = Path(__file__).parents[1]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("board_protocol", ROOT / "benchmarks" / "board" / "protocol.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["board_protocol"] = module
    spec.loader.exec_module(module)
    return module


protocol = load()
DOCUMENTS = [f"d{i}" for i in range(12)]


def pairs(*found: str) -> pd.DataFrame:
    return pd.DataFrame([pair.split() for pair in found], columns=["query_id", "document_id"])


@pytest.fixture
def task():
    """Query a has d0 known and d1 hidden, of which d2 is a copy; query b has d3 known and nothing hidden."""
    duplicates = pd.DataFrame({"document_id": ["d2"], "duplicate_of": ["d1"]})
    return protocol.Task(
        "toy", pd.DataFrame({"document_id": DOCUMENTS, "title": "", "text": [f"text {d}" for d in DOCUMENTS]}),
        pd.DataFrame({"query_id": ["a", "b"], "text": ["ask a", "ask b"]}), pairs("a d0", "b d3"),
        protocol.with_copies(pairs("a d0", "a d1", "b d3"), duplicates), pd.DataFrame(), pd.DataFrame(),
    )  # fmt: skip


def test_copies_of_what_is_relevant_are_relevant_whichever_was_labelled():
    duplicates = pd.DataFrame({"document_id": ["d2", "d5"], "duplicate_of": ["d1", "d1"]})
    for labelled in ("a d1", "a d2", "a d5"):
        found = protocol.with_copies(pairs(labelled), duplicates)
        assert set(found.document_id) == {"d1", "d2", "d5"}


def test_one_label_of_each_query_is_given_in_whatever_order_they_stand():
    labels = pairs("a d1", "a d2", "a d3", "b d4")
    found = protocol.one_each(labels)
    assert sorted(found.query_id) == ["a", "b"]
    again = protocol.one_each(labels[::-1])
    assert set(map(tuple, found.to_numpy())) == set(map(tuple, again.to_numpy())) <= set(map(tuple, labels.to_numpy()))


def test_a_miner_gets_no_truth(task, tmp_path):
    task.write(tmp_path)
    labels = (tmp_path / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()
    assert labels == ["query-id\tcorpus-id\tscore", "a\td0\t1", "b\td3\t1"]
    assert [json.loads(line)["_id"] for line in (tmp_path / "corpus.jsonl").open(encoding="utf-8")] == DOCUMENTS


def test_false_negatives_are_counted_where_they_are_known(task, tmp_path, monkeypatch):
    lines = [
        {"query_id": "a", "negative_ids": ["d1", "d2", "d4", "d5", "d6", "d7", "d8"]},
        {"query_id": "b", "negative_ids": ["d1", "d2", "d4"]},
    ]
    file = tmp_path / "submission.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr(protocol, "gap", lambda task, chosen: 0.25)
    found = protocol.score(task, protocol.read_submission(file, task))
    assert found["false_negative_rate"] == pytest.approx(2 / 7, abs=1e-5)
    assert (found["counted_queries"], found["coverage"], found["gap"]) == (1, 0.5, 0.25)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not json", "line 1: expected"),
        ('{"query": "a"}', "line 1: expected"),
        ('{"query_id": "z", "negative_ids": []}', '"z" is no query'),
        ('{"query_id": "a", "negative_ids": ["d1", "d1"]}', "all different"),
        ('{"query_id": "a", "negative_ids": ["x"]}', 'no document "x" in toy'),
        (json.dumps({"query_id": "a", "negative_ids": DOCUMENTS[:8]}), "at most 7"),
        ('{"query_id": "a", "negative_ids": []}\n{"query_id": "a", "negative_ids": []}', "line 2: .*twice"),
    ],
)
def test_a_submission_that_does_not_fit_is_told_by_its_line(task, tmp_path, line, told):
    file = tmp_path / "submission.jsonl"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(AnmiError, match=told):
        protocol.read_submission(file, task)
