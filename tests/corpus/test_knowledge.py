"""The graph as arrays, and the facts of documents, against slow readable ways to know the same."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import KnowledgeGraph, stated_facts, superset_of_triples

URIS, LITERALS, RELATIONS = [f"u:{i}" for i in range(4)], ["1", '"x"'], ["r", "s"]
# Heads that no list of entities names are nodes all the same.
TRIPLES = st.tuples(st.sampled_from([*URIS, "u:unknown"]), st.sampled_from(RELATIONS), st.sampled_from(URIS + LITERALS))


@st.composite
def worlds(draw):
    """Return the triples of the graph and, by document, those it states."""
    graph = draw(st.lists(TRIPLES, max_size=8))
    triples = st.one_of(TRIPLES, st.sampled_from(graph or [("u:0", "r", "1")]))
    stated = draw(st.lists(st.lists(triples, max_size=4), max_size=7))
    return graph, {f"d{i}": list(dict.fromkeys(triples)) for i, triples in enumerate(stated)}


def table(triples):
    return pd.DataFrame(triples, columns=["head", "relation", "tail"], dtype="str")


def known_of(graph, stated):
    entities = pd.DataFrame({"uri": URIS, "label": [uri.upper() for uri in URIS], "types": "[]"})
    rows = [(document, *triple) for document, triples in stated.items() for triple in triples]
    facts = pd.DataFrame(rows, columns=["document_id", "head", "relation", "tail"], dtype="str")
    return KnowledgeGraph.from_tables(entities, table(graph), facts, list(stated))


@given(worlds())
def test_triples_and_who_states_them(world):
    graph, stated = world
    known = known_of(graph, stated)
    everything = {*graph, *(triple for triples in stated.values() for triple in triples)}
    found = [(known.nodes[h], known.relations[r], known.nodes[t]) for h, r, t in known.triples]
    assert len(found) == len(everything) and set(found) == everything
    assert known.nodes[: len(URIS)] == tuple(URIS)
    for row, triples in enumerate(stated.values()):
        columns = known.stated.indices[known.stated.indptr[row] : known.stated.indptr[row + 1]]
        assert {found[column] for column in columns} == set(triples)


@given(worlds())
def test_a_document_is_about_the_entity_of_most_of_its_facts(world):
    graph, stated = world
    known = known_of(graph, stated)
    assert known.about.dtype == np.int32
    for entity, triples in zip(known.about, stated.values(), strict=True):
        # Of equals the counter, too, names the first.
        heads = Counter(head for head, _, _ in triples if head in URIS)
        assert entity == (URIS.index(heads.most_common(1)[0][0]) if heads else -1)


def test_more_documents_than_fit_into_one_block():
    stated = {f"d{i}": [(URIS[i % 4], "r", str(i // 8))] for i in range(5000)}
    found = known_of([], stated).entailing(np.arange(5000, dtype=np.int32)[:, None]).tocoo()
    expected = {(i, j) for i in range(5000) for j in (i, i ^ 4) if stated[f"d{i}"] == stated.get(f"d{j}")}
    assert set(zip(found.row.tolist(), found.col.tolist(), strict=True)) == expected


def corpus(**triples):
    metadata = [json.dumps({} if value is None else {"triples": value}) for value in triples.values()]
    return pd.DataFrame({"document_id": list(triples), "metadata": metadata}, dtype="str")


TRIPLE = st.tuples(st.sampled_from("ab"), st.sampled_from("pq"), st.sampled_from("xyz")).map(list)


@given(
    st.lists(st.one_of(st.none(), st.lists(TRIPLE, max_size=4)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 11)), min_size=1, max_size=12, unique=True),
)
def test_documents_that_state_all_triples_of_a_positive_are_equivalents(documents, labels):
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
    found = superset_of_triples(corpus(**{f"d{i}": triples for i, triples in enumerate(documents)}), qrels)
    assert set(map(tuple, found.values.tolist())) == expected and not found.duplicated().any()


def test_facts_stand_in_the_order_of_the_corpus_and_once():
    texts = corpus(b=[["x", "is", "y"], ["x", "is", "y"], ["z", "is", "y"]], a=None, c=[["x", "is", "y"]])
    found = stated_facts(texts, table([("c", "kind", "class"), ("a", "kind", "class"), ("x", "is", "y")]))
    assert found.index.tolist() == [0, 1, 2, 3, 4]
    assert found.to_numpy().tolist() == [
        ["b", "x", "is", "y"], ["b", "z", "is", "y"], ["a", "a", "kind", "class"], ["c", "c", "kind", "class"],
        ["c", "x", "is", "y"],
    ]  # fmt: skip
