"""What is new in a version of a collection, and when that is mined alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.difference import EVERYTHING, Difference, Part, contents_of, plan

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


DOCUMENTS = {f"d{i}": "1" for i in range(20)}
QUERIES = {f"q{i}": "1" for i in range(10)}
BEFORE = version(DOCUMENTS, QUERIES)
ALL_MINED = {**EVERYTHING, "settings": "s", "since_all": {"documents": 0, "queries": 0}, "why": "of then"}


def planned(
    now: pd.DataFrame = BEFORE,
    before: pd.DataFrame | None = BEFORE,
    earlier: dict[str, Any] = ALL_MINED,
    asked: bool = True,
    settings: str = "s",
    most: float = 0.1,
    lacking: str = "",
    losers: Callable[[Difference], Iterable[str]] = lambda difference: (),
) -> dict[str, Any]:
    found = plan(asked, earlier, before, now, settings, most, lambda: lacking, losers)
    # As it is saved, and comes back at the next mining.
    again: dict[str, Any] = json.loads(json.dumps(found))
    assert again == found
    return again


def with_changed(names: Iterable[str], of: dict[str, str], to: str = "2") -> dict[str, str]:
    return of | dict.fromkeys(names, to)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"asked": False}, "rows of an earlier mining were not asked for"),
        ({"earlier": {}}, "there is no earlier mining of which all is there"),
        ({"before": None}, "there is no earlier mining of which all is there"),
        ({"settings": "others"}, "settings, code or models are others"),
        ({"lacking": "the cross-encoders are gone"}, "the cross-encoders are gone"),
        (
            {"now": version(with_changed(["d1", "d2", "d3"], DOCUMENTS), QUERIES)},
            "15% of the documents changed since all was mined",
        ),
        (
            {"now": version(DOCUMENTS, with_changed(["q1", "q2"], QUERIES))},
            "20% of the queries changed since all was mined",
        ),
        (
            {"now": version(DOCUMENTS, dict(list(QUERIES.items())[2:]))},
            "25% of the queries changed since all was mined",
        ),
    ],
    ids=["not asked", "nothing", "no contents", "settings", "lacking", "documents", "queries", "removed queries"],
)
def test_all_is_mined_for_a_reason_that_is_told(arguments: dict[str, Any], why: str) -> None:
    found = planned(**arguments)
    assert found.items() >= {**EVERYTHING, "why": why}.items()
    assert found["since_all"] == {"documents": 0, "queries": 0}, "what changed is counted from now on"
    assert found["settings"] == arguments.get("settings", "s")


def test_up_to_the_share_only_what_changed_is_mined() -> None:
    documents = with_changed(["d1"], DOCUMENTS) | {"new": "1"}
    found = planned(version(documents, with_changed(["q3"], QUERIES)))
    assert (found["mined"], found["queries"], found["documents_changed"]) == ("changed", ["q3"], ["d1"])
    assert found["counts"] == {
        "documents": {"added": 1, "changed": 1, "removed": 0},
        "queries": {"added": 0, "changed": 1, "removed": 0},
    }
    assert found["since_all"] == {"documents": 2, "queries": 1}
    assert found["why"] == "1 of 10 queries are new, changed or lost a document"


@pytest.mark.parametrize(("kind", "changed", "most"), [("queries", ["q7"], 0.25), ("documents", ["d3", "d4"], 0.2)])
def test_changes_add_up_over_updates_until_all_is_mined_again(kind: str, changed: list[str], most: float) -> None:
    earlier, before, parts = ALL_MINED, BEFORE, {"documents": DOCUMENTS, "queries": QUERIES}
    for number, mined in enumerate(["changed", "changed", "all", "changed"]):
        # The same each time: what was mined under the old labels, or beside the old texts, of others counts as well.
        parts = parts | {kind: with_changed(changed, parts[kind], to=f"at {number}")}
        now = version(**parts)
        found = planned(now, before, earlier, most=most)
        assert found["mined"] == mined, number
        other = "documents" if kind == "queries" else "queries"
        assert found["since_all"] == {kind: len(changed) * [1, 2, 0, 1][number], other: 0}
        earlier, before = found, now


def test_new_changed_and_losing_queries_are_mined_and_removed_ones_named() -> None:
    seen: list[Difference] = []

    def losers(difference: Difference) -> Iterable[str]:
        seen.append(difference)
        # Also one that is gone itself.
        yield from ("q5", "q4", "q2", "q5")

    documents, queries = dict(DOCUMENTS), with_changed(["q3", "q5"], QUERIES) | {"new": "1"}
    del documents["d9"], queries["q4"]
    now = version(documents, queries)
    found = planned(now, most=1.0, losers=losers)
    assert found["queries"] == ["q2", "q3", "q5", "new"], "in the order of the collection, each once"
    assert found["removed"] == ["q4"]
    assert found["why"] == "4 of 10 queries are new, changed or lost a document"
    assert seen == [Difference.between(BEFORE, now)]


def test_where_nothing_changed_one_query_is_mined_all_the_same() -> None:
    found = planned()
    assert (found["mined"], found["queries"], found["removed"]) == ("changed", ["q0"], [])
    assert found["since_all"] == {"documents": 0, "queries": 0}


def test_a_query_that_is_mined_for_want_of_any_other_is_not_said_to_be_new() -> None:
    assert not planned()["why"].startswith("1 of 10 queries are new, changed or lost")


def test_losers_are_not_looked_for_where_all_is_mined() -> None:
    def losers(difference: Difference) -> Iterable[str]:
        raise AssertionError("this reads the whole selection")

    assert planned(settings="others", losers=losers)["mined"] == "all"
