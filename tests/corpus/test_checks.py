"""What becomes of queries of one text, and what an equal text that comes later changes."""

from __future__ import annotations

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.corpus.sources import assemble
from anmi.corpus.types import Collection, Options, RawCollection, counts_by_reason


def read(
    queries: list[tuple[str, str]], labels: list[tuple[str, str, int, str]], equivalent: bool = False, **options: object
) -> Collection:
    """A collection of queries (id, text) with labels (query, document, relevance, split)."""
    documents = sorted({document for _, document, _, _ in labels})
    origin = {"metadata": "{}", "file": "made", "line": 1}
    raw = RawCollection(
        pd.DataFrame({"document_id": documents, "title": "", "text": [f"text of {d}" for d in documents]}).assign(
            **origin
        ),
        pd.DataFrame(queries, columns=["query_id", "text"]).assign(**origin),
        pd.DataFrame(labels, columns=["query_id", "document_id", "relevance", "split"]).assign(file="made", line=1),
        same_text_is_equivalent=equivalent,
        language="en",
    )
    return assemble("made", raw, Options(**options))  # type: ignore[arg-type]


QUERIES = [
    ("q1", "What is a fox?"), ("q2", "an owl"), ("a0", "what is a FOX"), ("d1", "x"), ("d2", "X!"), ("t1", "y"),
    ("t2", "Y"),
]  # fmt: skip
LABELS = [
    ("q1", "fox", 1, "train"), ("q1", "vixen", 1, "train"), ("q2", "owl", 1, "train"),
    ("a0", "vixen", 2, "train"), ("a0", "fur", 1, "train"),
    ("d1", "one", 1, "dev"), ("d2", "two", 1, "dev"), ("t1", "three", 1, "test"), ("t2", "four", 1, "test"),
]  # fmt: skip


def labels_of(found: Collection, query: str) -> dict[str, int]:
    rows = found.qrels[found.qrels.query_id == query]
    assert not rows.document_id.duplicated().any()
    return dict(zip(rows.document_id, rows.relevance, strict=True))


def test_queries_of_one_text_become_one_with_all_their_labels() -> None:
    found = read(QUERIES, LABELS)
    assert found.queries.query_id.tolist() == ["q1", "q2", "d1", "t1", "t2"], "the first stays, and test as it is"
    assert labels_of(found, "q1") == {"fox": 1, "vixen": 2, "fur": 1}, "of two labels the higher one"
    assert labels_of(found, "d1") == {"one": 1, "two": 1}
    assert (labels_of(found, "t1"), labels_of(found, "t2")) == ({"three": 1}, {"four": 1})
    assert found.qrels.set_index("query_id").split["q1"].eq("train").all()
    told = 'its labels went to the query of the same text "{}"'
    assert found.quarantine.set_index("id").reason.to_dict() == {"a0": told.format("q1"), "d2": told.format("d1")}
    assert counts_by_reason(found.quarantine) == {"its labels went to the query of the same text": 2}


def test_where_equal_texts_are_the_known_truth_they_stay_apart() -> None:
    found = read(QUERIES, LABELS, equivalent=True)
    assert len(found.queries) == len(QUERIES)
    assert {("q1", "fur"), ("a0", "fox")} <= set(found.equivalents.itertuples(index=False, name=None))


NAMES = [f"q{i:02}" for i in range(40)]
TEXTS = {name: f"Thing {name}" for name in NAMES}


@given(st.sets(st.sampled_from(NAMES)), st.sampled_from([None, 5, 12]), st.integers(0, 5))
@settings(max_examples=25)
def test_an_equal_text_under_a_smaller_id_moves_nothing(again: set[str], subset: int | None, seed: int) -> None:
    labels = [(name, f"of {name}", 1, "train") for name in NAMES]
    options = {"seed": seed, "subset": subset, "dev_share": 0.2, "test_share": 0.2}
    before = read(list(TEXTS.items()), labels, **options)
    more = {f"a{name}": f"thing {name}." for name in sorted(again)}
    labels += [(name, f"of {name}", 1, "train") for name in more]
    after = read([*TEXTS.items(), *more.items()], labels, **options)
    split = dict(zip(before.queries.query_id, before.queries.split, strict=True))
    now = dict(zip(after.queries.query_id, after.queries.split, strict=True))
    assert {name: now.get(name) for name in split} == split
    # What came is merged, or a test query beside the one that has its text.
    assert {name for name in now if name not in split} == {f"a{name}" for name in again if split.get(name) == "test"}
