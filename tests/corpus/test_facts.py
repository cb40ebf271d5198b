"""What documents state."""

from __future__ import annotations

import json

import pandas as pd

from anmi.corpus.graph_tables import stated_facts, triples_of


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


def test_a_fact_of_both_kinds_counts_once():
    assert rows(stated_facts(corpus(a=[["a", "is", "b"]]), graph(("a", "is", "b")))) == [("a", "a", "is", "b")]


def test_names_that_mean_the_same_are_one_fact():
    found = stated_facts(corpus(a=[["x", "is", "y"], ["X", "is", "y"]]), graph(), lambda t: (t[0].upper(), *t[1:]))
    assert rows(found) == [("a", "X", "is", "y")]


def test_nothing_is_stated():
    for texts in (corpus(a=None), corpus()):
        found = stated_facts(texts, graph(("z", "is", "y")))
        assert found.empty
        assert list(found.columns) == ["document_id", "head", "relation", "tail"]


def test_what_is_no_triple_is_left_out():
    written = [["a", "b", "c"], ["a", "b"], "abc", None, ["a", "b", ["c"]], ["a", " ", "c"], ["a", "b", 2.5]]
    assert triples_of(json.dumps({"triples": written})) == ([("a", "b", "c"), ("a", "b", "2.5")], False)
    assert triples_of('{"triples": {"a": 1}}') == ([], False)
    assert triples_of('{"triples": null, "x": "triples"}') == ([], True)
    assert rows(stated_facts(corpus(a="none", b=written[:2]), graph())) == [("b", "a", "b", "c")]
