"""What a folder with a graph becomes, the graph as arrays, and what is said of damaged ones."""

from __future__ import annotations

import json
import logging
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import (
    KnowledgeGraph,
    read_rdf,
    resolver,
    stated_facts,
    superset_of_triples,
)
from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError

BASE, ONTOLOGY = "http://x.org/r/", "http://x.org/o/"


def facts_of(collection, document):
    found = collection.facts[collection.facts.document_id == document]
    return rows(found[["head", "relation", "tail"]])


def rows(table):
    return table.to_numpy().tolist()


@pytest.mark.parametrize("place", [".", ".."])
def test_a_clean_folder_comes_through_whole(graph_folder, place):
    collection = graph_folder.write(place=place)
    # Tables are taken before RDF.
    (graph_folder.path / "graph.ttl").write_text("no Turtle at all")
    found = load_collection(collection)
    assert len(found.entities) == 13
    assert list(found.entities.columns) == ["uri", "label", "types"]
    assert found.entities.iloc[0].tolist() == [f"{BASE}City_0", "City 0", '["city"]']
    assert len(found.graph) == 30
    assert rows(found.graph)[10] == [f"{BASE}City_0", "people", "0000"]
    assert rows(found.graph)[20] == [f"{BASE}City_0", "motto", '"Motto 0"']
    both = [[f"{BASE}City_1", "country", f"{BASE}Country_1"], [f"{BASE}City_1", "people", "1000"]]
    assert facts_of(found, "d21") == both
    assert len(found.facts) == 60 and found.quarantine.empty and set(found.notes) == {"graph"}


def test_names_may_be_written_in_several_ways(graph_folder):
    graph_folder.entities.append({"uri": "d3", "label": "the document", "types": ["document"]})
    graph_folder.triples.append(f"d3\tabout\t{BASE}City_9")
    triples = [["City_0", "country", "Country_0"], ["City_0", "motto", "Motto 0"]]
    triples += [["City_0", "people", '"0000"'], ["City_0", "twin", '"City_1"']]
    triples += [[f"{BASE}City_0", "country", f"{BASE}Country_0"]]
    graph_folder.documents[0]["metadata"] = {"triples": triples}
    found = load_collection(graph_folder.write())
    relations = ["country", "motto", "people"]
    tails = [f"{BASE}Country_0", '"Motto 0"', "0000"]
    expected = [[f"{BASE}City_0", *pair] for pair in zip(relations, tails, strict=True)]
    # In quotation marks it is no city.
    assert facts_of(found, "d0") == [*expected, [f"{BASE}City_0", "twin", '"City_1"']]
    assert found.notes["stated triples that the graph lacks"] == 1
    # A document that is an entity states its triples.
    assert ["d3", "about", f"{BASE}City_9"] in facts_of(found, "d3")


SEGMENTS = st.lists(st.sampled_from(["a", "b", "c d", "HIV", "<x>"]), min_size=1, max_size=4)


@given(st.lists(SEGMENTS, min_size=1, max_size=8), SEGMENTS)
def test_a_name_stands_for_every_uri_that_ends_in_it(paths, wanted):
    uris = {f"http://x.org/{'/'.join(path)}" for path in paths}
    name, ending = "/".join(wanted), {uri for uri in uris if uri.endswith("/" + "/".join(wanted))}
    for uri in ending:
        assert resolver(uris, {(uri, "r", uri)})((name, "r", name)) == (uri, "r", uri)
    assert all(resolver(uris, set())((uri, "r", "x")) == (uri, "r", "x") for uri in uris)
    if len(ending) < 2:
        assert resolver(uris, set())((name, "r", "x"))[0] == min(ending, default=name)


def test_the_graph_tells_what_an_ambiguous_name_means():
    uris = ["http://x.org/b", "http://y.org/b", "http://x.org/c", "http://o.org/in"]
    resolve = resolver(uris, {(uris[1], uris[3], uris[2])})
    assert resolve(("b", "in", "c")) == (uris[1], uris[3], uris[2])
    assert resolve(("b", "in", "b")) == ("b", uris[3], "b")
    assert resolve(("c", "near", '"b"')) == (uris[2], "near", '"b"')


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f'"City_0"\tcountry\t{BASE}Country_0', "the head is a literal"),
        (f"{BASE}City_0\ta\t  \ttrain", "the head, the relation or the tail is empty"),
    ],
)
def test_one_bad_triple_is_set_aside(graph_folder, line, reason):
    graph_folder.triples.insert(7, line)
    found = load_collection(graph_folder.write())
    (entry,) = found.quarantine.to_dict("records")
    assert (entry["kind"], entry["id"]) == ("triple", line.split("\t", maxsplit=1)[0])
    assert entry["file"].endswith("triples.tsv") and (entry["line"], entry["reason"]) == (9, reason)
    assert len(found.graph) == 30


def test_entities_without_a_type_have_the_ranges_they_are_in(graph_folder):
    for i in (10, 11, 12):
        del graph_folder.entities[i]["types"]
    graph_folder.entities[5]["types"] = []
    graph_folder.triples.append(f"{BASE}City_0\tneighbour\t{BASE}Country_2")
    found = load_collection(graph_folder.write())
    types = dict(zip(found.entities.uri, map(json.loads, found.entities.types), strict=True))
    assert types[f"{BASE}Country_0"] == ["range:country"]
    assert types[f"{BASE}Country_2"] == ["range:country", "range:neighbour"]
    assert types[f"{BASE}City_5"] == [] and types[f"{BASE}City_4"] == ["city"]


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("City_0", 0),
        ([["City_0", "country"], ["City_0", " ", "a"]], 0),
        ([["City_0", "country", None], ["City_0", "people", "0000"], ["City_0", "people", 2.5]], 2),
    ],
)
def test_malformed_triples_of_a_document(graph_folder, written, kept):
    graph_folder.documents[4]["metadata"]["triples"] = written
    found = load_collection(graph_folder.write())
    assert len(facts_of(found, "d4")) == kept
    (entry,) = found.quarantine.to_dict("records")
    assert (entry["kind"], entry["id"], entry["line"]) == ("fact", "d4", 5)
    assert entry["file"].endswith("corpus.jsonl") and "metadata.triples" in entry["reason"]
    assert "d4" in set(found.corpus.document_id)
    graph_folder.documents[5]["metadata"]["triples"] = written
    with pytest.raises(AnmiError, match=r'2 of 40 documents .*corpus.jsonl line 5, "d4"'):
        load_collection(graph_folder.write())


PREFIXES = """@prefix : <http://x.org/r/> .
@prefix o: <http://x.org/o/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""


@pytest.fixture
def read(tmp_path):
    def read(text, language="en"):
        path = tmp_path / "graph.ttl"
        path.write_text(PREFIXES + text, encoding="utf-8")
        return read_rdf(path, language)

    return read


TURTLE = """
:City_0 a o:City ; rdfs:label "City 0" ; rdfs:comment "The city 0." ; o:country :Country_0 ; o:people 1000 .
:City_1 a o:City ; rdfs:label "City 1"@en ; o:country :Country_0 ; o:motto "Ever \\"more\\""@la .
:Country_0 rdfs:label "Country 0" .
"""
CITY = {"types": [f"{ONTOLOGY}City"]}
ENTITIES = [
    {"uri": f"{BASE}City_0", "label": "City 0", "description": "The city 0.", **CITY},
    {"uri": f"{BASE}Country_0", "label": "Country 0"},
    {"uri": f"{BASE}City_1", "label": "City 1", **CITY},
]
TRIPLES = [
    f"{BASE}City_0\t{ONTOLOGY}country\t{BASE}Country_0",
    f"{BASE}City_0\t{ONTOLOGY}people\t1000",
    f"{BASE}City_1\t{ONTOLOGY}country\t{BASE}Country_0",
    f'{BASE}City_1\t{ONTOLOGY}motto\t"Ever "more""',
]


def test_three_ways_to_write_one_graph(graph_folder):
    for i, document in enumerate(graph_folder.documents):
        triples = [[f"City_{i % 2}", "country", "Country_0"], ["City_1", "motto", 'Ever "more"']]
        document["metadata"] = {"triples": triples}
    graph_folder.entities, graph_folder.triples = ENTITIES, TRIPLES
    found = [load_collection(graph_folder.write())]
    for path in graph_folder.path.parent.glob("*.*"):
        path.unlink()
    # The graph may lie in the folder or one above; rdflib orders the N-Triples as it likes.
    graph = rdflib.Graph("SimpleMemory").parse(data=PREFIXES + TURTLE, format="turtle")
    ntriples = graph.serialize(format="nt")
    places = {
        "graph.nt": "".join(line + "\n" for line in ntriples.splitlines()),
        "../graph.ttl": PREFIXES + TURTLE,
    }
    for name, text in places.items():
        (graph_folder.path / name).write_text(text, encoding="utf-8")
        found.append(load_collection(graph_folder.write(tables=False)))
        (graph_folder.path / name).unlink()
    for other in found[1:]:
        for table in ("entities", "graph", "facts"):
            sets = [sorted(rows(getattr(each, table))) for each in (found[0], other)]
            assert sets[0] == sets[1]
        assert "stated triples that the graph lacks" not in other.notes
    fact = ["d0", f"{BASE}City_0", f"{ONTOLOGY}country", f"{BASE}Country_0"]
    assert rows(found[0].facts)[0] == fact
    pd.testing.assert_frame_equal(found[0].entities, found[2].entities)


@pytest.mark.parametrize(
    ("text", "language", "label"),
    [
        (':V rdfs:label "Wien"@de , "Viena"@es , "Vienna"@en-GB , "V" .', "es", "Viena"),
        (':V rdfs:label "Wien"@de , "Viena"@es , "Vienna"@en-GB , "V" .', "fr", "Vienna"),
        (':V rdfs:label "Wien"@de , "V" .', "en", "V"),
        (':V rdfs:label "Wien"@de , "Viena"@es .', "en", "Wien"),
        (":Old_Vienna o:in :Austria .", "en", "Old Vienna"),
    ],
)
def test_the_language_of_labels(read, text, language, label):
    assert read(text, language)[0].label[0] == label


def test_types_have_those_above_them_and_cycles_end(read):
    found, _ = read("""
    o:Airport rdfs:subClassOf o:Place , o:Hub . o:Place rdfs:subClassOf o:Thing . o:Thing rdfs:subClassOf o:Airport .
    o:Hub rdfs:subClassOf o:Hub , owl:Thing .
    :a a o:Place , owl:Thing , owl:NamedIndividual . :b a o:Airport . :c a owl:Thing .
    """)
    assert found.uri.tolist() == [f"{BASE}{name}" for name in "abc"], "classes are no entities"
    types = [[name.removeprefix(ONTOLOGY) for name in json.loads(text)] for text in found.types]
    assert types == [["Place", "Thing", "Airport", "Hub"], ["Airport", "Place", "Thing", "Hub"], []]


def test_the_vocabulary_and_blank_nodes_are_no_facts(read):
    entities, triples = read("""
    o:City a owl:Class ; rdfs:label "city" . o:in a owl:ObjectProperty ; rdfs:label "in" ; rdfs:range o:Country .
    :a o:in :b ; owl:sameAs <http://y.org/a> ; rdfs:seeAlso <http://z.org> ; o:seat [ o:city :c ] .
    :a rdfs:comment "A comment." ; <http://dbpedia.org/ontology/abstract> "An abstract."@en .
    """)
    assert rows(triples) == [[f"{BASE}a", f"{ONTOLOGY}in", f"{BASE}b"]]
    assert entities.uri.tolist() == [f"{BASE}a", f"{BASE}b"]


@pytest.mark.parametrize(
    ("written", "tail"),
    [
        ('"Text"@en', '"Text"'),
        ('"Text"^^xsd:string', '"Text"'),
        ('"two\\nlines"', '"two\nlines"'),
        ('"01.50"^^xsd:decimal', "01.50"),
        ('"1943-13-45"^^xsd:date', "1943-13-45"),
        ("<odd uri>", "http://no-base.invalid/odd uri"),
    ],
)
def test_tails_stand_as_they_are_written(read, written, tail, caplog):
    with caplog.at_level(logging.WARNING):
        assert read(f":a o:b {written} .")[1]["tail"].tolist() == [tail]
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n:a o:b :c .\n:a o:b\n\n", ["line 9", "not valid Turtle"]),
        (":a o:b unknown:c .", ["line 7", "unknown:"]),
        ("{}", ["line 7"]),
        ("(" * 5000, ["not valid Turtle", "recursion"]),
        ("[] o:b :c .", ["no triple that names its head"]),
    ],
)
def test_what_is_no_turtle_is_refused(read, text, words):
    with pytest.raises(AnmiError) as caught:
        read(text)
    message = str(caught.value)
    assert all(word in message for word in ["graph.ttl", *words]) and "\n" not in message


URIS, LITERALS, RELATIONS = [f"u:{i}" for i in range(4)], ["1", '"x"'], ["r", "s"]
# Heads that no list of entities names are nodes all the same.
STATED = st.tuples(*map(st.sampled_from, ([*URIS, "u:unknown"], RELATIONS, URIS + LITERALS)))


@st.composite
def worlds(draw):
    """Return the triples of the graph and, by document, those it states."""
    graph = draw(st.lists(STATED, max_size=8))
    triples = st.one_of(STATED, st.sampled_from(graph or [("u:0", "r", "1")]))
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
    expected = {
        (i, j) for i in range(5000) for j in (i, i ^ 4) if stated[f"d{i}"] == stated.get(f"d{j}")
    }
    assert set(zip(found.row.tolist(), found.col.tolist(), strict=True)) == expected


def corpus(**triples):
    metadata = [
        json.dumps({} if value is None else {"triples": value}) for value in triples.values()
    ]
    return pd.DataFrame({"document_id": list(triples), "metadata": metadata}, dtype="str")


TRIPLE = st.tuples(st.sampled_from("ab"), st.sampled_from("pq"), st.sampled_from("xyz")).map(list)


STATING = st.lists(st.none() | st.lists(TRIPLE, max_size=4), min_size=1, max_size=12)
LABELS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 11)), min_size=1, max_size=12)


@given(STATING, LABELS)
def test_documents_that_state_all_triples_of_a_positive_are_equivalents(documents, labels):
    labels = [(query, document) for query, document in labels if document < len(documents)]
    pairs = [(f"q{query}", f"d{document}") for query, document in labels]
    qrels = pd.DataFrame(pairs, columns=["query_id", "document_id"], dtype="str")
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
    texts = corpus(**{f"d{i}": triples for i, triples in enumerate(documents)})
    found = superset_of_triples(texts, qrels)
    assert set(map(tuple, found.values.tolist())) == expected and not found.duplicated().any()


def test_facts_stand_in_the_order_of_the_corpus_and_once():
    xy, zy = ["x", "is", "y"], ["z", "is", "y"]
    texts = corpus(b=[xy, xy, zy], a=None, c=[xy])
    found = stated_facts(texts, table([("c", "kind", "class"), ("a", "kind", "class"), tuple(xy)]))
    assert found.index.tolist() == [0, 1, 2, 3, 4]
    of_a, of_c = (["a", "a", "kind", "class"], ["c", "c", "kind", "class"])
    assert found.to_numpy().tolist() == [["b", *xy], ["b", *zy], of_a, of_c, ["c", *xy]]
