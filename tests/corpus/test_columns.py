"""Columns of texts and facts of documents."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import stated_facts, triples_of
from anmi.corpus.texts import among, column, containing, document_texts, taken

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=12)


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_a_column_answers_as_a_list_does(texts: list[str], known: list[str], skipped: int) -> None:
    series = pd.Series(texts, dtype="str")[skipped:]
    left = texts[skipped:]
    assert among(series, known).tolist() == [text in known for text in left]
    assert containing(series, "a").tolist() == [place for place, text in enumerate(left) if "a" in text]
    places = np.arange(len(left))[::-1]
    assert taken(series, places) == left[::-1]
    pd.testing.assert_series_equal(column(left), pd.Series(left, dtype="str"))


@given(TEXTS, TEXTS)
def test_texts_of_documents_are_title_and_text(titles: list[str], texts: list[str]) -> None:
    pairs = list(zip(titles, texts, strict=False))
    corpus = pd.DataFrame({"title": [one for one, _ in pairs], "text": [other for _, other in pairs]}, dtype="str")
    assert document_texts(corpus) == [f"{one} {other}".strip() for one, other in pairs]


def corpus(**triples):
    metadata = [json.dumps({} if value is None else {"triples": value}) for value in triples.values()]
    return pd.DataFrame({"document_id": list(triples), "metadata": metadata})


def graph(*triples):
    return pd.DataFrame(list(triples), columns=["head", "relation", "tail"], dtype="str")


def rows(table):
    return [tuple(row) for row in table.itertuples(index=False)]


def test_facts_stand_in_the_order_of_the_corpus_and_once():
    texts = corpus(b=[["x", "is", "y"], ["x", "is", "y"], ["z", "is", "y"]], a=None, c=[["x", "is", "y"]])
    found = stated_facts(texts, graph(("c", "kind", "class"), ("a", "kind", "class"), ("x", "is", "y")))
    assert rows(found) == [
        ("b", "x", "is", "y"),
        ("b", "z", "is", "y"),
        ("a", "a", "kind", "class"),
        ("c", "c", "kind", "class"),
        ("c", "x", "is", "y"),
    ]
    assert found.index.tolist() == [0, 1, 2, 3, 4]


def test_what_is_no_triple_is_left_out():
    written = [["a", "b", "c"], ["a", "b"], "abc", None, ["a", "b", ["c"]], ["a", " ", "c"], ["a", "b", 2.5]]
    assert triples_of(json.dumps({"triples": written})) == ([("a", "b", "c"), ("a", "b", "2.5")], False)
    assert triples_of('{"triples": {"a": 1}}') == ([], False)
    assert triples_of('{"triples": null, "x": "triples"}') == ([], True)
    assert rows(stated_facts(corpus(a="none", b=written[:2]), graph())) == [("b", "a", "b", "c")]
