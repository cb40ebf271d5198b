"""What is new in a version of a collection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.difference import Difference, Part, contents_of

Tables = dict[str, pd.DataFrame]
VERSION = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("12"))


def tables() -> Tables:
    """Two training queries with labels, one without, and one each of dev and test."""
    ids, splits = ["q0", "q1", "bare", "dev", "test"], ["train", "train", "train", "dev", "test"]
    labels = [("q0", "d0", 1), ("q0", "d1", 2), ("q1", "d2", 1), ("dev", "d0", 1), ("test", "d1", 1)]
    return {
        "corpus": pd.DataFrame({
            "document_id": [f"d{i}" for i in range(5)],
            "title": [f"title {i}" for i in range(5)],
            "text": [f"text {i}" for i in range(5)],
            "metadata": "{}",
        }),
        "queries": pd.DataFrame({"query_id": ids, "text": [f"what of {i}?" for i in ids], "split": splits}),
        "qrels": pd.DataFrame(labels, columns=["query_id", "document_id", "relevance"]),
    }  # fmt: skip


def put(found: Tables, table: str, row: int, column: str, value: Any) -> None:
    found[table].loc[row, column] = value


def drop(found: Tables, table: str, row: int) -> None:
    found[table] = found[table].drop(index=row)


def label(found: Tables, query: str, document: str) -> None:
    found["qrels"] = pd.concat(
        [found["qrels"], pd.DataFrame({"query_id": [query], "document_id": [document], "relevance": [1]})]
    )


def changed(edit: Callable[[Tables], None]) -> tuple[list[str], list[str]]:
    """Ids of the documents and of the queries that an edit touches, of which none comes or goes."""
    after = tables()
    edit(after)
    found = Difference.between(contents_of(**tables()), contents_of(**after))
    assert not [*found.queries.added, *found.queries.removed]
    return found.documents.changed, found.queries.changed


def test_documents_come_in_their_order_and_of_queries_those_that_are_mined() -> None:
    found = contents_of(**tables())
    assert found[["kind", "id"]].to_numpy().tolist() == [
        *(["document", f"d{i}"] for i in range(5)), ["query", "q0"], ["query", "q1"],
    ]  # fmt: skip
    assert found.digest.nunique() == len(found)
    assert found.digest.map(len).eq(32).all()


def test_nothing_at_all_has_the_same_columns() -> None:
    nothing = contents_of(**{name: table.iloc[:0] for name, table in tables().items()})
    assert len(nothing) == 0
    assert list(nothing.columns) == list(contents_of(**tables()).columns)


@pytest.mark.parametrize(
    ("edit", "documents", "queries"),
    [
        (lambda t: put(t, "queries", 0, "text", "what else?"), [], ["q0"]),
        (lambda t: put(t, "qrels", 1, "relevance", 1), [], ["q0"]),
        (lambda t: put(t, "qrels", 2, "document_id", "d4"), [], ["q1"]),
        (lambda t: label(t, "q1", "d3"), [], ["q1"]),
        (lambda t: drop(t, "qrels", 1), [], ["q0"]),
        (lambda t: put(t, "corpus", 1, "text", "corrected"), ["d1"], ["q0"]),
        (lambda t: put(t, "corpus", 1, "title", "corrected"), ["d1"], ["q0"]),
        (lambda t: put(t, "corpus", 2, "metadata", '{"year": 1}'), ["d2"], ["q1"]),
        (lambda t: drop(t, "corpus", 0), [], ["q0"]),
    ],
    ids=["text", "relevance", "other label", "new label", "lost label", "document", "title", "metadata", "gone"],
)
def test_a_query_changes_with_its_text_its_labels_and_what_is_labelled(
    edit: Callable[[Tables], None], documents: list[str], queries: list[str]
) -> None:
    assert changed(edit) == (documents, queries)


@pytest.mark.parametrize(
    ("edit", "documents"),
    [
        (lambda t: put(t, "corpus", 3, "text", "corrected"), ["d3"]),
        (lambda t: drop(t, "corpus", 4), []),
        (lambda t: t.update(qrels=t["qrels"].iloc[::-1]), []),
        (lambda t: t.update(corpus=t["corpus"].iloc[::-1], queries=t["queries"].iloc[::-1]), []),
        (lambda t: put(t, "queries", 3, "text", "what else?"), []),
        (lambda t: put(t, "queries", 4, "text", "what else?"), []),
        (lambda t: label(t, "test", "d3"), []),
    ],
    ids=["unlabelled document", "unlabelled gone", "order of labels", "order", "dev", "test", "label of test"],
)
def test_a_query_does_not_change_with_what_it_is_not_mined_from(
    edit: Callable[[Tables], None], documents: list[str]
) -> None:
    assert changed(edit) == (documents, [])


def test_a_query_that_gets_its_first_label_is_new_and_one_that_becomes_a_test_query_is_gone() -> None:
    after = tables()
    label(after, "bare", "d3")
    put(after, "queries", 1, "split", "test")
    found = Difference.between(contents_of(**tables()), contents_of(**after)).queries
    assert (found.added, found.changed, found.removed) == (["bare"], [], ["q1"])


@given(VERSION, VERSION)
def test_a_part_is_what_sets_say(before: dict[str, str], now: dict[str, str]) -> None:
    part = Part.between(before, now)
    both = before.keys() & now.keys()
    assert part.added == [name for name in now if name in now.keys() - before.keys()]
    assert part.removed == [name for name in before if name in before.keys() - now.keys()]
    assert part.changed == [name for name in now if name in {k for k, _ in before.items() ^ now.items()} & both]
    assert part.total == len(now)
    assert part.touched == len({name for name, _ in before.items() ^ now.items()})
    assert sum(part.counts().values()) == part.touched


@given(VERSION, VERSION, VERSION, VERSION)
def test_documents_and_queries_of_one_name_are_kept_apart(
    documents: dict[str, str], queries: dict[str, str], more: dict[str, str], other: dict[str, str]
) -> None:
    found = Difference.between(version(documents, queries), version(more, other))
    assert found == Difference(Part.between(documents, more), Part.between(queries, other))


def version(documents: dict[str, str], queries: dict[str, str]) -> pd.DataFrame:
    rows = [("document", *each) for each in documents.items()] + [("query", *each) for each in queries.items()]
    return pd.DataFrame(rows, columns=["kind", "id", "digest"], dtype=str)
