from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.corpus.marks import (
    Mark,
    add,
    current_marks,
    file_of,
    question_of,
    questions,
    read_log,
    with_marks,
)
from anmi.corpus.types import Collection, empty, table_of
from anmi.errors import AnmiError
from anmi.seeds import cut

SPLIT = {"a": "train", "b": "dev", "t": "test"}
NAMES = st.sampled_from([*SPLIT, "gone"])
DOCUMENTS = st.sampled_from(["d1", "d2", "d3", "gone"])
MARKS = st.lists(st.builds(Mark, NAMES, DOCUMENTS, st.sampled_from([0, 1, None])), max_size=12)


def collection() -> Collection:
    documents = ["d1", "d2", "d3"]
    queries = pd.DataFrame({"query_id": [*SPLIT], "text": [*SPLIT], "split": [*SPLIT.values()]})
    labels = [("a", "d1"), ("a", "d2"), ("b", "d2"), ("t", "d3")]
    qrels = pd.DataFrame(labels, columns=["query_id", "document_id"]).assign(relevance=1)
    return Collection(
        "small",
        "en",
        pd.DataFrame({"document_id": documents, "title": "", "text": documents, "metadata": "{}"}),
        queries.assign(metadata="{}", same_as=""),
        qrels.assign(split=qrels.query_id.map(SPLIT)),
        pd.DataFrame({"query_id": ["a", "t"], "document_id": ["d3", "d1"]}),
        empty("head", "relation", "tail"),
        empty("document_id", "duplicate_of"),
        table_of(),
    )


def pairs(table: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(table.query_id, table.document_id, strict=True))


@given(MARKS)
def test_labels_are_what_was_said_last_and_those_of_test_stay(log: list[Mark]) -> None:
    before = collection()
    found, counted = with_marks(before, current_marks(log))
    said = {(mark.query_id, mark.document_id): mark.relevance for mark in log}
    # The oracle: a set of pairs, changed mark by mark.
    expected = pairs(before.qrels)
    for (query, document), relevance in said.items():
        if SPLIT.get(query) in ("train", "dev") and document != "gone" and relevance is not None:
            expected = (
                expected | {(query, document)} if relevance else expected - {(query, document)}
            )
    assert pairs(found.qrels) == expected
    assert not found.qrels.duplicated(["query_id", "document_id"]).any()
    assert (found.qrels.split == found.qrels.query_id.map(SPLIT)).all()
    of_test = [
        table[table.split == "test"].reset_index(drop=True) for table in (before.qrels, found.qrels)
    ]
    pd.testing.assert_frame_equal(*of_test)
    assert pairs(counted) == {
        pair
        for pair, relevance in said.items()
        if relevance is not None and SPLIT.get(pair[0]) in ("train", "dev") and pair[1] != "gone"
    }
    assert set(found.queries.query_id) == {query for query, _ in expected}
    gone = set(SPLIT) - set(found.queries.query_id)
    assert set(found.quarantine.id) == gone
    assert pairs(found.equivalents) == pairs(before.equivalents) - pairs(counted)


def ask(text: str, document: str, relevance: int | None = 1, split: str = "train") -> Mark:
    return Mark(
        question_of(text)[0], document, relevance, "me", question=question_of(text)[1], split=split
    ).now()


def test_a_question_is_a_query_with_what_was_marked_for_it() -> None:
    log = [ask("Why  so?\0", "d1"), ask("why so", "d2", 0), ask("WHY SO!", "d3", split="test")]
    log += [ask("nothing found", "d1", 0), ask("taken back", "d1"), ask("taken back", "d1", None)]
    log += [ask("B", "d3"), ask("t?", "d1"), ask("gone", "gone")]
    marks, asked = current_marks(log), questions(log)
    found, counted = with_marks(collection(), marks, asked, seed=1, dev_share=0.5)
    name = question_of("why so")[0]
    new = found.queries[found.queries.query_id.str.startswith("asked-")]
    assert new[["query_id", "text", "split"]].to_numpy().tolist() == [[name, "WHY SO!", "test"]]
    assert pairs(found.qrels[found.qrels.query_id == name]) == {(name, "d1"), (name, "d3")}
    # A question with the text of a query is that query, and one of test stays as it was.
    assert ("b", "d3") in pairs(found.qrels)
    assert ("t", "d1") not in pairs(found.qrels)
    assert pairs(counted) == {(name, "d1"), (name, "d2"), (name, "d3"), ("b", "d3")}
    assert found.notes["marks"].startswith("3 pairs marked as relevant, 1 as not relevant; 1 quest")


@settings(max_examples=10)
@given(st.permutations(range(100)))
def test_dev_is_cut_from_questions_by_their_text_where_there_is_none(order: list[int]) -> None:
    before = collection()
    before = replace(
        before, queries=before.queries[:0], qrels=before.qrels[:0], notes={"labels": "none"}
    )
    splits = ["train"] * 4 + ["test"]
    log = [ask(f"question {number}", "d1", split=splits[number % 5]) for number in order]
    test = {mark.question for mark in log if mark.split == "test"}
    found, _ = with_marks(before, current_marks(log), questions(log), seed=1, dev_share=0.35)
    splits = found.queries.set_index("text").split
    dev = {text for text in splits.index if cut([text], 1, dev_share=0.35)[0] == "dev"} - test
    assert (set(splits.index[splits == "test"]), set(splits.index[splits == "dev"])) == (test, dev)
    split_of_query = found.queries.set_index("query_id").split
    assert (found.qrels.split == found.qrels.query_id.map(split_of_query)).all()
    assert "labels" not in found.notes
    # A handful says less than pseudo-queries, which stand in where there is no dev query.
    log = log[:40]
    few, _ = with_marks(before, current_marks(log), questions(log), seed=1, dev_share=0.35)
    assert set(few.queries.split) == {"train", "test"}


def test_a_file_keeps_all_that_was_ever_said(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "marks.jsonl"
    hostile = "<script>\u202e\"'\n\0"
    made = [add(path, Mark("q", hostile, value, "me")) for value in (1, 0, None)]
    assert read_log(path) == made
    assert all(mark.at.endswith("+00:00") for mark in made)
    assert current_marks(read_log(path)).empty
    assert [file.name for file in path.parent.iterdir() if file.name[0] != "."] == ["marks.jsonl"]


def test_none_is_lost_where_several_mark_at_once(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add(path, Mark(f"q{number}", "d", 1)), range(40)))
    assert len(read_log(path)) == 40


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '"x"',
        '{"query_id": "q"}',
        '{"query_id": 1, "document_id": "d", "relevance": 1}',
        '{"query_id": "q", "document_id": "d", "relevance": 2}',
        '{"query_id": "q", "document_id": "d", "relevance": 1, "question": "x", "split": "dev"}',
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "marks.jsonl"
    path.write_text(
        '{"query_id": "q", "document_id": "d", "relevance": null}\n' + line + "\n", encoding="utf-8"
    )
    with pytest.raises(AnmiError, match=r"marks\.jsonl line 2 is no mark"):
        read_log(path)


def test_two_collections_never_share_a_file() -> None:
    files = {
        file_of("marks", name) for name in ("beir:a/b", "beir:a-b", "beir:a b", "beir:" + "x/" * 99)
    }
    assert len(files) == 4
    assert all(len(path.name) < 100 for path in files if path)
