"""What a folder with a graph becomes, from tables and from RDF, and what is said of damaged ones."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pandas as pd
import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import read_rdf, resolver
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
    triples = [
        [f"{BASE}City_0", "country", f"{BASE}Country_0"], ["City_0", "country", "Country_0"],
        ["City_0", "motto", "Motto 0"], ["City_0", "people", '"0000"'], ["City_0", "twin", '"City_1"'],
    ]  # fmt: skip
    graph_folder.documents[0]["metadata"] = {"triples": triples}
    found = load_collection(graph_folder.write())
    assert facts_of(found, "d0") == [
        [f"{BASE}City_0", "country", f"{BASE}Country_0"],
        [f"{BASE}City_0", "motto", '"Motto 0"'],
        [f"{BASE}City_0", "people", "0000"],
        # In quotation marks it is no city.
        [f"{BASE}City_0", "twin", '"City_1"'],
    ]
    assert found.notes["stated triples that the graph lacks"] == 1
    assert ["d3", "about", f"{BASE}City_9"] in facts_of(found, "d3"), "a document that is an entity states its triples"


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
    known = {("http://y.org/b", "http://o.org/in", "http://x.org/c")}
    resolve = resolver(["http://x.org/b", "http://y.org/b", "http://x.org/c", "http://o.org/in"], known)
    assert resolve(("b", "in", "c")) == ("http://y.org/b", "http://o.org/in", "http://x.org/c")
    assert resolve(("b", "in", "b")) == ("b", "http://o.org/in", "b")
    assert resolve(("c", "near", '"b"')) == ("http://x.org/c", "near", '"b"')


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
    [("City_0", 0), ([["City_0", "country"], ["City_0", " ", "a"]], 0),
     ([["City_0", "country", None], ["City_0", "people", "0000"], ["City_0", "people", 2.5]], 2)],
)  # fmt: skip
def test_malformed_triples_of_a_document(graph_folder, written, kept):
    graph_folder.documents[4]["metadata"]["triples"] = written
    found = load_collection(graph_folder.write())
    assert len(facts_of(found, "d4")) == kept
    (entry,) = found.quarantine.to_dict("records")
    assert (entry["kind"], entry["id"], entry["line"]) == ("fact", "d4", 5)
    assert entry["file"].endswith("corpus.jsonl") and "metadata.triples" in entry["reason"]
    assert "d4" in set(found.corpus.document_id)
    graph_folder.documents[5]["metadata"]["triples"] = written
    with pytest.raises(AnmiError, match=r'2 of 40 documents are damaged.*corpus.jsonl line 5, "d4": metadata.triples'):
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
        return SimpleNamespace(**dict(zip(("entities", "triples"), read_rdf(path, language), strict=True)))

    return read


TURTLE = """
:City_0 a o:City ; rdfs:label "City 0" ; rdfs:comment "The city 0." ; o:country :Country_0 ; o:people 1000 .
:City_1 a o:City ; rdfs:label "City 1"@en ; o:country :Country_0 ; o:motto "Ever \\"more\\""@la .
:Country_0 rdfs:label "Country 0" .
"""
ENTITIES = [
    {"uri": f"{BASE}City_0", "label": "City 0", "types": [f"{ONTOLOGY}City"], "description": "The city 0."},
    {"uri": f"{BASE}Country_0", "label": "Country 0"},
    {"uri": f"{BASE}City_1", "label": "City 1", "types": [f"{ONTOLOGY}City"]},
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
    graph_folder.triples_header = "head\trelation\ttail"
    found = [load_collection(graph_folder.write())]
    for path in graph_folder.path.parent.glob("*.*"):
        path.unlink()
    # The graph may lie in the folder or one above; rdflib writes the N-Triples, in an order of its own.
    ntriples = rdflib.Graph("SimpleMemory").parse(data=PREFIXES + TURTLE, format="turtle").serialize(format="nt")
    places = {"graph.nt": "".join(line + "\n" for line in ntriples.splitlines()), "../graph.ttl": PREFIXES + TURTLE}
    for name, text in places.items():
        (graph_folder.path / name).write_text(text, encoding="utf-8")
        found.append(load_collection(graph_folder.write(tables=False)))
        (graph_folder.path / name).unlink()
    for other in found[1:]:
        for table in ("entities", "graph", "facts"):
            sets = [sorted(rows(getattr(each, table))) for each in (found[0], other)]
            assert sets[0] == sets[1]
        assert "stated triples that the graph lacks" not in other.notes
    assert rows(found[0].facts)[0] == ["d0", f"{BASE}City_0", f"{ONTOLOGY}country", f"{BASE}Country_0"]
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
    assert read(text, language).entities.label[0] == label


def test_types_have_those_above_them_and_cycles_end(read):
    found = read("""
    o:Airport rdfs:subClassOf o:Place , o:Hub . o:Place rdfs:subClassOf o:Thing . o:Thing rdfs:subClassOf o:Airport .
    o:Hub rdfs:subClassOf o:Hub , owl:Thing .
    :a a o:Place , owl:Thing , owl:NamedIndividual . :b a o:Airport . :c a owl:Thing .
    """).entities
    assert found.uri.tolist() == [f"{BASE}{name}" for name in "abc"], "classes are no entities"
    types = [[name.removeprefix(ONTOLOGY) for name in json.loads(text)] for text in found.types]
    assert types == [["Place", "Thing", "Airport", "Hub"], ["Airport", "Place", "Thing", "Hub"], []]


def test_the_vocabulary_and_blank_nodes_are_no_facts(read):
    found = read("""
    o:City a owl:Class ; rdfs:label "city" . o:in a owl:ObjectProperty ; rdfs:label "in" ; rdfs:range o:Country .
    :a o:in :b ; owl:sameAs <http://y.org/a> ; rdfs:seeAlso <http://z.org> ; o:seat [ o:city :c ] .
    :a rdfs:comment "A comment." ; <http://dbpedia.org/ontology/abstract> "An abstract."@en .
    """)
    assert rows(found.triples) == [[f"{BASE}a", f"{ONTOLOGY}in", f"{BASE}b"]]
    assert found.entities.uri.tolist() == [f"{BASE}a", f"{BASE}b"]


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
        assert read(f":a o:b {written} .").triples["tail"].tolist() == [tail]
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
    assert all(word in str(caught.value) for word in ["graph.ttl", *words]) and "\n" not in str(caught.value)
