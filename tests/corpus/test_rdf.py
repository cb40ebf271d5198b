"""Graphs in Turtle and N-Triples."""

from __future__ import annotations

import json
import logging
import sys

import pandas as pd
import pytest

from anmi.corpus.kg import read_rdf
from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError

rdflib = pytest.importorskip("rdflib")

PREFIXES = """@prefix : <http://x.org/r/> .
@prefix o: <http://x.org/o/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""
BASE, ONTOLOGY = "http://x.org/r/", "http://x.org/o/"


@pytest.fixture
def read(tmp_path):
    def read(text, *, suffix="ttl", language="en"):
        path = tmp_path / f"graph.{suffix}"
        path.write_text(PREFIXES + text if suffix == "ttl" else text, encoding="utf-8")
        return read_rdf(path, language)

    return read


def rows(table):
    return table.to_numpy().tolist()


TURTLE = """
:City_0 a o:City ; rdfs:label "City 0" ; rdfs:comment "The city 0." ; o:country :Country_0 ; o:people 1000 .
:City_1 a o:City ; rdfs:label "City 1"@en ; o:country :Country_0 ; o:motto "Ever \\"more\\""@la .
:Country_0 rdfs:label "Country 0" .
"""
NTRIPLES = """# A comment.
<http://x.org/r/City_0> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x.org/o/City> .
<http://x.org/r/City_0> <http://www.w3.org/2000/01/rdf-schema#label> "City 0" .
<http://x.org/r/City_0> <http://www.w3.org/2000/01/rdf-schema#comment> "The city 0." .
<http://x.org/r/City_0> <http://x.org/o/country> <http://x.org/r/Country_0> .
<http://x.org/r/City_0> <http://x.org/o/people> "1000"^^<http://www.w3.org/2001/XMLSchema#integer> .

<http://x.org/r/City_1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x.org/o/City> .
<http://x.org/r/City_1> <http://www.w3.org/2000/01/rdf-schema#label> "City 1"@en .
<http://x.org/r/City_1> <http://x.org/o/country> <http://x.org/r/Country_0> .
<http://x.org/r/City_1> <http://x.org/o/motto> "Ever \\"more\\""@la .
<http://x.org/r/Country_0> <http://www.w3.org/2000/01/rdf-schema#label> "Country 0" .
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
        document["metadata"] = {
            "triples": [[f"City_{i % 2}", "country", "Country_0"], ["City_1", "motto", 'Ever "more"']]
        }
    graph_folder.entities, graph_folder.triples = ENTITIES, TRIPLES
    graph_folder.triples_header = "head\trelation\ttail"
    found = [load_collection(graph_folder.write())]
    for path in graph_folder.path.parent.glob("*.*"):
        path.unlink()
    for name, text in (("graph.nt", NTRIPLES), ("graph.ttl", PREFIXES + TURTLE), ("other.ttl", PREFIXES + TURTLE)):
        (graph_folder.path / name).write_text(text, encoding="utf-8")
        found.append(load_collection(graph_folder.write(tables=False)))
        (graph_folder.path / name).unlink()
    for other in found[1:]:
        for table in ("entities", "graph", "facts"):
            pd.testing.assert_frame_equal(getattr(found[0], table), getattr(other, table))
        assert other.notes["entities without a type"] == found[0].notes["entities without a type"] == 1
        assert "stated triples that the graph lacks" not in other.notes
    assert rows(found[0].facts)[0] == ["d0", f"{BASE}City_0", f"{ONTOLOGY}country", f"{BASE}Country_0"]
    assert found[0].entities.types[1] == f'["range:{ONTOLOGY}country"]'


def test_tables_are_taken_before_rdf(graph_folder):
    collection = graph_folder.write()
    (graph_folder.path / "graph.ttl").write_text("no Turtle at all")
    assert len(load_collection(collection).graph) == 30


@pytest.mark.parametrize(
    ("language", "label"), [("es", "Viena"), ("de", "Wien"), ("en", "Vienna"), ("fr", "Vienna"), ("pt", "Vienna")]
)
def test_the_language_of_labels(read, language, label):
    text = ':V rdfs:label "Wien"@de , "Viena"@es , "Vienna"@en-GB , "V" .'
    assert read(text, language=language).entities.label[0] == label


def test_labels_without_english_ones(read):
    assert read(':V rdfs:label "Wien"@de , "V" .').entities.label[0] == "V"
    assert read(':V rdfs:label "Wien"@de , "Viena"@es .').entities.label[0] == "Wien"
    assert read(":Old_Vienna o:in :Austria .").entities.label.tolist() == ["Old Vienna", "Austria"]


def test_descriptions(read):
    text = """
    :a rdfs:comment "A comment." ; <http://dbpedia.org/ontology/abstract> "An abstract." .
    :b <http://dbpedia.org/ontology/abstract> "An abstract."@en , "Un resumen."@es .
    :c <http://schema.org/description> "Words." . :d rdfs:comment "Nur deutsch."@de .
    :d <http://dbpedia.org/ontology/abstract> "English."@en .
    """
    found = read(text)
    assert found.entities.description.tolist() == ["A comment.", "An abstract.", "Words.", "English."]
    assert found.triples.empty


def test_types_have_those_above_them_and_cycles_end(read):
    text = """
    o:Airport rdfs:subClassOf o:Place , o:Hub . o:Place rdfs:subClassOf o:Thing . o:Thing rdfs:subClassOf o:Airport .
    o:Hub rdfs:subClassOf o:Hub , owl:Thing .
    :a a o:Place , owl:Thing , owl:NamedIndividual . :b a o:Airport . :c a owl:Thing .
    """
    found = read(text).entities
    assert found.uri.tolist() == [f"{BASE}{name}" for name in "abc"], "classes are no entities"
    types = [[name.removeprefix(ONTOLOGY) for name in json.loads(text)] for text in found.types]
    assert types == [["Place", "Thing", "Airport", "Hub"], ["Airport", "Place", "Thing", "Hub"], []]


def test_the_vocabulary_is_no_fact(read):
    text = """
    o:City a owl:Class ; rdfs:label "city" . o:in a owl:ObjectProperty ; rdfs:label "in" ; rdfs:range o:Country .
    :a o:in :b ; owl:sameAs <http://y.org/a> ; rdfs:seeAlso <http://z.org> .
    """
    found = read(text)
    assert rows(found.triples) == [[f"{BASE}a", f"{ONTOLOGY}in", f"{BASE}b"]]
    assert found.entities.uri.tolist() == [f"{BASE}a", f"{BASE}b"]
    assert found.notes == {"triples about names and classes": 3}


def test_blank_nodes_are_left_out_and_counted(read):
    found = read(":a o:in :b ; o:seat [ o:city :c ] .")
    assert rows(found.triples) == [[f"{BASE}a", f"{ONTOLOGY}in", f"{BASE}b"]]
    assert found.notes == {"triples with a blank node": 2}


@pytest.mark.parametrize(
    ("written", "tail"),
    [
        ('"Text"', '"Text"'),
        ('"Text"@en', '"Text"'),
        ('"Text"^^xsd:string', '"Text"'),
        ('"two\\nlines"', '"two\nlines"'),
        ("25.0", "25.0"),
        ('"01.50"^^xsd:decimal', "01.50"),
        ('"1943-13-45"^^xsd:date', "1943-13-45"),
        ("true", "true"),
        ("<odd uri>", "http://no-base.invalid/odd uri"),
    ],
)
def test_tails_stand_as_they_are_written(read, written, tail, caplog):
    with caplog.at_level(logging.WARNING):
        assert read(f":a o:b {written} .").triples["tail"].tolist() == [tail]
    assert not caplog.records
    assert rdflib.NORMALIZE_LITERALS is True


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n:a o:b :c .\n:a o:b\n\n", ["line 9", "not valid Turtle"]),
        (":a o:b unknown:c .", ["line 7", "unknown:"]),
        (':a o:b "open .\n', ["line 7", "newline"]),
        ("{}", ["line 7"]),
        ("(" * 5000, ["not valid Turtle", "recursion"]),
        ("[] o:b :c .", ["no triple that names its head"]),
        (NTRIPLES.replace('"The city 0." .', '"The city 0."'), ["line 11", "end of statement"]),
    ],
)
def test_what_is_no_turtle_is_refused(read, text, words):
    with pytest.raises(AnmiError) as caught:
        read(text)
    for word in ["graph.ttl", *words]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["nt", "ttl"])
def test_files_that_are_empty_or_no_text(tmp_path, suffix):
    path = tmp_path / f"graph.{suffix}"
    path.write_text("")
    with pytest.raises(AnmiError, match=f"{path.name} is empty"):
        read_rdf(path, "en")
    path.write_bytes('<http://x.org/a> <http://x.org/b> "é" .\n'.encode("latin-1"))
    with pytest.raises(AnmiError, match=f"{path.name} line 1 is not UTF-8"):
        read_rdf(path, "en")


def test_without_rdflib_the_extra_is_named(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(AnmiError, match=r'graph.ttl needs the package rdflib.*pip install "anmi\[rdf\]"'):
        read(TURTLE)
