"""Equivalents against slow, readable references."""

from __future__ import annotations

import json

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.checks import same_text, superset_of_triples

TRIPLE = st.tuples(st.sampled_from("ab"), st.sampled_from("pq"), st.sampled_from("xyz")).map(list)


@given(
    st.lists(st.one_of(st.none(), st.lists(TRIPLE, max_size=4)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 11)), min_size=1, max_size=12, unique=True),
)
def test_supersets_of_triples(documents, labels):
    metadata = [json.dumps({} if triples is None else {"triples": triples}) for triples in documents]
    corpus = pd.DataFrame({"document_id": [f"d{i}" for i in range(len(documents))], "metadata": metadata}, dtype="str")
    labels = [(query, document) for query, document in labels if document < len(documents)]
    qrels = pd.DataFrame([(f"q{q}", f"d{d}") for q, d in labels], columns=["query_id", "document_id"], dtype="str")
    facts = [{tuple(t) for t in triples or []} for triples in documents]
    expected = set()
    for query in {q for q, _ in labels}:
        own = {d for q, d in labels if q == query}
        asked = [facts[d] for d in own if facts[d]]
        expected |= {
            (f"q{query}", f"d{d}")
            for d in range(len(documents))
            if d not in own and any(needed <= facts[d] for needed in asked)
        }
    found = superset_of_triples(corpus, qrels)
    assert set(map(tuple, found.values.tolist())) == expected
    assert not found.duplicated().any()


def test_no_triples_no_equivalents():
    corpus = pd.DataFrame({"document_id": ["d"], "metadata": ["{}"]})
    assert superset_of_triples(corpus, pd.DataFrame({"query_id": ["q"], "document_id": ["d"]})).empty


def test_same_text():
    queries = pd.DataFrame({"query_id": ["a", "b", "c"], "normalised": ["x", "x", "y"]})
    qrels = pd.DataFrame({"query_id": ["a", "b", "c"], "document_id": ["1", "2", "3"]})
    assert same_text(queries, qrels).values.tolist() == [["a", "2"], ["b", "1"]]
