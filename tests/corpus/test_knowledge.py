"""The graph as arrays, against slow readable ways to know the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import KnowledgeGraph

URIS, LITERALS, RELATIONS = [f"u:{i}" for i in range(4)], ["1", '"x"'], ["r", "s"]
# Heads that no list of entities names are nodes all the same.
TRIPLES = st.tuples(st.sampled_from([*URIS, "u:unknown"]), st.sampled_from(RELATIONS), st.sampled_from(URIS + LITERALS))


@st.composite
def worlds(draw):
    """Return the triples of the graph and, by document, those it states."""
    graph = draw(st.lists(TRIPLES, max_size=8))
    stated = draw(
        st.lists(st.lists(st.one_of(TRIPLES, st.sampled_from(graph or [("u:0", "r", "1")])), max_size=4), max_size=7)
    )
    return graph, {f"d{i}": list(dict.fromkeys(triples)) for i, triples in enumerate(stated)}


def known_of(graph, stated, types=()):
    types = [*types, *["[]"] * (len(URIS) - len(types))]
    entities = pd.DataFrame({"uri": URIS, "label": [uri.upper() for uri in URIS], "types": types})
    table = pd.DataFrame(graph, columns=["head", "relation", "tail"], dtype="str")
    rows = [(document, *triple) for document, triples in stated.items() for triple in triples]
    facts = pd.DataFrame(rows, columns=["document_id", "head", "relation", "tail"], dtype="str")
    return KnowledgeGraph.from_tables(entities, table, facts, list(stated))


def triple_of(known, row):
    head, relation, tail = known.triples[row]
    return known.nodes[head], known.relations[relation], known.nodes[tail]


@given(worlds())
def test_triples_and_who_states_them(world):
    graph, stated = world
    known = known_of(graph, stated)
    everything = {*graph, *(triple for triples in stated.values() for triple in triples)}
    found = [triple_of(known, row) for row in range(len(known.triples))]
    assert len(found) == len(everything)
    assert set(found) == everything
    assert known.nodes[: len(URIS)] == tuple(URIS)
    assert known.stated.shape == (len(stated), len(found))
    for row, triples in enumerate(stated.values()):
        columns = known.stated.indices[known.stated.indptr[row] : known.stated.indptr[row + 1]]
        assert {found[column] for column in columns} == set(triples)


@given(worlds())
def test_what_is_true_is_in_the_graph_or_stated(world):
    graph, stated = world
    known = known_of(graph, stated)
    everything = {*graph, *(triple for triples in stated.values() for triple in triples)}
    # -1 is what an index says of a name it does not know.
    nodes, relations = np.arange(-1, len(known.nodes)), np.arange(-1, len(known.relations))
    arrays = nodes[:, None, None], relations[None, :, None], nodes[None, None, :]
    number = known.number(*arrays)
    found = number >= 0
    assert found.shape == (len(nodes), len(relations), len(nodes))
    for i, head in enumerate(nodes):
        for j, relation in enumerate(relations):
            for k, tail in enumerate(nodes):
                names = min(head, relation, tail) >= 0 and (
                    known.nodes[head], known.relations[relation], known.nodes[tail]
                )  # fmt: skip
                assert found[i, j, k] == (names in everything)
                assert (number[i, j, k] >= 0) == found[i, j, k]
                if found[i, j, k]:
                    assert triple_of(known, number[i, j, k]) == names


@given(worlds(), st.data())
def test_a_document_entails_another_whose_facts_it_all_states(world, data):
    graph, stated = world
    known = known_of(graph, stated)
    documents = st.integers(-1, len(stated) - 1)
    queries = data.draw(st.lists(st.lists(documents, min_size=3, max_size=3), max_size=5))
    found = known.entailing(np.array(queries, np.int32).reshape(-1, 3))
    assert found.shape == (len(queries), len(stated))
    facts = [set(triples) for triples in stated.values()]
    for query, positives in zip(found.toarray(), queries, strict=True):
        own = [facts[row] for row in positives if row >= 0 and facts[row]]
        assert query.tolist() == [any(needed <= other for needed in own) for other in facts]


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
