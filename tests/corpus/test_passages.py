"""Passages: nothing of a text is lost, headings are carried along, and labels follow."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.marks import Mark, current_marks, questions, with_marks
from anmi.corpus.passages import LONG, TARGET, cut_collection, cut_text
from anmi.corpus.related import copies, find_related, first_passages, parents_of
from anmi.corpus.sentences import count_words
from anmi.corpus.sources import load_collection
from anmi.corpus.types import Collection
from anmi.pipelines.ingestion.nodes import ingest
from anmi.pipelines.params import IngestionParams

_PIECES = (
    "oak |It is old. |\n\n|\n|# A\n\n|## B\n\n|東京は雨です。|- one\n|" + "ไทย" * 9 + "|" + "¶" * 50
)
TEXTS = st.lists(st.sampled_from(_PIECES.split("|")), max_size=60).map("".join)


@given(TEXTS, st.integers(1, 40), st.sampled_from(["en", "ja", "th"]))
def test_passages_hold_the_whole_text_in_order(text: str, target: int, language: str) -> None:
    found = cut_text(text, target, language)
    ends = [0, *(one.end for one in found)]
    assert all(before <= one.start < one.end for before, one in zip(ends, found, strict=False))
    between = [text[before : one.start] for before, one in zip(ends, found, strict=False)]
    assert not "".join([*between, text[ends[-1] :]]).strip()
    # One ends where the next unit would pass the target, and a short rest joins the last.
    assert all(count_words(text[one.start : one.end]) <= 2 * target + 40 for one in found)


def words(count: int, of: str) -> str:
    return " ".join(f"{of}{number} is told here." for number in range(-(-count // 4)))


def test_headings_begin_passages_and_are_carried_along() -> None:
    sections = ("", 150), ("Where\n-----", 150), ("### North", 300), ("## When", 90)
    text = "\n\n".join(f"{heading}\n\n{words(count, 'a')}" for heading, count in sections)
    north = ("Where", "North")
    expected = [(), ("Where",), north, north, north, ("When",)]
    assert [one.headings for one in cut_text(text, TARGET, "en")] == expected


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Two short documents, a long one about three things, and a copy of it; a query for one of the three."""
    (tmp_path / "qrels").mkdir()
    body = "\n\n".join(words(LONG, name) for name in ("oak", "elm", "yew"))
    rows = [("short", "An ash."), ("tree", body), ("copy", body), ("other", "A beech.")]
    lines = [json.dumps({"_id": name, "title": f"On {name}", "text": text}) for name, text in rows]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    queries = enumerate(["what of elm3", "what of beech", "which yew9"])
    asked = [json.dumps({"_id": f"q{n}", "text": text}) for n, text in queries]
    (tmp_path / "queries.jsonl").write_text("\n".join(asked))
    labels = {"train": "q0\ttree\t1", "dev": "q1\tother\t1", "test": "q2\ttree\t2"}
    for split, label in labels.items():
        (tmp_path / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{label}\n")
    return tmp_path


def cut(folder: Path, kind: str = "beir") -> Collection:
    found = load_collection(f"{kind}:{folder}")
    return cut_collection(found, "auto", parents_of(found.corpus))


def test_long_documents_are_cut_and_labels_follow(long: Path) -> None:
    found = cut(long)
    parts = found.corpus[found.corpus.parent == "tree"]
    assert parts.document_id.tolist() == [f"tree#{n}" for n in range(1, len(parts) + 1)]
    whole = load_collection(f"beir:{long}").corpus.set_index("document_id").text["tree"]
    assert all(map(whole.startswith, parts.text, parts.start))
    assert set(parts.title) == {"On tree"}
    assert found.corpus.start[found.corpus.parent == "short"].tolist() == [-1]
    labels = found.qrels[found.qrels.query_id == "q2"]
    assert labels.document_id.tolist() == parts.document_id.tolist()
    assert found.notes["passages"] == f"2 of 4 documents are cut into {2 * len(parts)} passages"


@pytest.mark.parametrize(("short", "is_cut"), [(16, True), (17, False)])
def test_where_under_a_tenth_is_long_none_is_cut_unless_a_number_is_set(
    short: int, is_cut: bool, long: Path
) -> None:
    lines = [json.dumps({"_id": f"s{n}", "text": f"A beech, {n}."}) for n in range(short)]
    with (long / "corpus.jsonl").open("a") as corpus:
        corpus.write("\n" + "\n".join(lines))
    found = cut(long)
    assert (found.corpus.start >= 0).any() == is_cut
    assert ("under a tenth" in found.notes["passages"]) != is_cut
    whole = load_collection(f"beir:{long}")
    assert (cut_collection(whole, LONG, parents_of(whole.corpus)).corpus.start >= 0).any()


@pytest.mark.parametrize(
    ("first", "lead"), [("Of the oak.", "Of the oak."), ("x" * 500, "x" * 160)]
)
def test_a_first_sentence_stands_for_a_missing_title(first: str, lead: str, long: Path) -> None:
    body = f" {first} And so on.\n\n{words(LONG, 'a')}\n\n# Use\n\n{words(LONG, 'b')}"
    rows = [json.dumps({"_id": name, "text": body}) for name in ("tree", "other")]
    (long / "corpus.jsonl").write_text("\n".join(rows))
    titles = cut(long).corpus.title[lambda found: found.index < len(found) / 2].tolist()
    assert titles[0] == ""
    assert dict.fromkeys(titles[1:]) == {lead: None, "Use": None}


def test_marks_are_of_passages_or_of_all_of_a_document(long: Path) -> None:
    said = {"copy": 0, "tree#2": 0, "tree#3": 1}
    log = [Mark("q0", name, relevance).now() for name, relevance in said.items()]
    asked = [
        Mark("asked", f"copy#{n}", int(n == 1), question="which oak?", split="train").now()
        for n in (1, 2)
    ]
    found, marks = with_marks(cut(long), current_marks(log + asked), questions(asked))
    assert len(marks) == (found.corpus.parent == "copy").sum() + 4
    assert "tree#2" not in set(found.qrels.document_id[found.qrels.query_id == "q0"])
    assert found.qrels.document_id[found.qrels.query_id == "asked"].tolist() == ["copy#1"]
    assert found.notes["marks"].startswith("2 pairs marked as relevant, 3 as not")


def test_a_document_is_a_copy_where_all_its_passages_are(long: Path) -> None:
    # Titles are part of the texts.
    file = long / "corpus.jsonl"
    file.write_text(file.read_text().replace("On copy", "On tree"))
    found = cut(long)
    corpus = found.corpus
    related = find_related(corpus, found.forms, found.duplicates, corpus.parent)
    assert copies(related, corpus) == {"copy": "tree"}
    firsts = np.flatnonzero(~corpus.parent.duplicated())[pd.factorize(corpus.parent)[0]]
    assert (first_passages(corpus["parent"]) == firsts).all()


def test_no_passage_holds_the_headings_of_the_whole_file(tmp_path: Path) -> None:
    sections = "".join(f"<h2>Part {n}</h2><p>{words(200, f'w{n}x')}</p>" for n in range(9))
    (tmp_path / "long.html").write_text(f"<h1>Trees</h1>{sections}")
    corpus = cut(tmp_path, "docs").corpus
    assert corpus.title[2] == "Trees › Part 1"
    assert set(corpus.metadata) == {'{"path":"long.html"}'}


@pytest.mark.parametrize(
    ("parents", "documents"), [("metadata", 9), ("ids", 3)], ids=["rows", "documents by ids"]
)
def test_rows_whose_ids_count_are_documents_unless_a_setting_says_otherwise(
    parents: str, documents: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{name}_{number}" for name in ("bill", "post", "user") for number in (1, 2, 3)]
    rows = [json.dumps({"id": name, "text": f"Of {name}."}) for name in names]
    (tmp_path / "faq.jsonl").write_text("\n".join(rows))
    params = IngestionParams(parents=parents, marks=None)
    with caplog.at_level(logging.INFO):
        found = ingest(f"docs:{tmp_path}/faq.jsonl", params, 1)
    assert found["corpus"].parent.nunique() == documents
    assert found["related_documents"].values.tolist()[0][:3] == ["bill_1", "bill_2", "sibling"]
    assert len(found["related_documents"]) == 6, "parts are no negatives of each other"
    assert ("ids look like parts of 3 documents" in caplog.text) == (parents == "metadata")
