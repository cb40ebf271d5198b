"""What a folder with a graph becomes, and what is said of damaged ones."""

from __future__ import annotations

import json

import pytest

from anmi.corpus.knowledge import KnowledgeGraph, superset_of_triples
from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError
from anmi.retrieval.pool import Positives

BASE = "http://x.org/r/"


def types_of(collection):
    return dict(zip(collection.entities.uri, map(json.loads, collection.entities.types), strict=True))


def facts_of(collection, document):
    found = collection.facts[collection.facts.document_id == document]
    return found[["head", "relation", "tail"]].to_numpy().tolist()


def rows(table):
    return table.to_numpy().tolist()


@pytest.mark.parametrize("place", [".", ".."])
def test_a_clean_folder_comes_through_whole(graph_folder, place):
    found = load_collection(graph_folder.write(place=place))
    assert len(found.entities) == 13
    assert list(found.entities.columns) == ["uri", "label", "types", "description"]
    assert found.entities.iloc[0].tolist() == [f"{BASE}City_0", "City 0", '["city"]', "The city 0."]
    assert found.entities.description[12] == ""
    assert len(found.graph) == 30
    assert rows(found.graph)[10] == [f"{BASE}City_0", "people", "0000"]
    assert rows(found.graph)[20] == [f"{BASE}City_0", "motto", '"Motto 0"']
    assert facts_of(found, "d21") == [
        [f"{BASE}City_1", "country", f"{BASE}Country_1"],
        [f"{BASE}City_1", "people", "1000"],
    ]
    assert len(found.facts) == 60
    assert found.quarantine.empty
    assert set(found.notes) == {"graph"}


def test_names_may_be_written_in_several_ways(graph_folder):
    graph_folder.documents[0]["metadata"] = {
        "triples": [
            [f"{BASE}City_0", "country", f"{BASE}Country_0"],
            ["City_0", "country", "Country_0"],
            ["City_0", "motto", "Motto 0"],
            ["City_0", "people", '"0000"'],
            ["City_0", "twin", '"City_1"'],
        ]
    }
    found = load_collection(graph_folder.write())
    assert facts_of(found, "d0") == [
        [f"{BASE}City_0", "country", f"{BASE}Country_0"],
        [f"{BASE}City_0", "motto", '"Motto 0"'],
        [f"{BASE}City_0", "people", "0000"],
        # In quotation marks it is no city.
        [f"{BASE}City_0", "twin", '"City_1"'],
    ]
    assert found.notes["stated triples that the graph lacks"] == 1


def test_a_document_that_is_an_entity_states_its_triples(graph_folder):
    graph_folder.entities.append({"uri": "d3", "label": "the document", "types": ["document"]})
    graph_folder.triples.append(f"d3\tabout\t{BASE}City_9")
    found = load_collection(graph_folder.write())
    assert ["d3", "about", f"{BASE}City_9"] in facts_of(found, "d3")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"{BASE}Atlantis\tcountry\t{BASE}Country_0", "the head is no entity"),
        (f'"City_0"\tcountry\t{BASE}Country_0', "the head is a literal"),
        (f"{BASE}City_0\tcountry", "2 columns where head, relation, tail and maybe split were expected"),
        (f"{BASE}City_0\ta\tb\ttrain\tmore", "5 columns where head, relation, tail and maybe split were expected"),
        (f"{BASE}City_0\t\tb", "the head, the relation or the tail is empty"),
        (f"{BASE}City_0\ta\t  \ttrain", "the head, the relation or the tail is empty"),
    ],
)
def test_one_bad_triple_is_set_aside(graph_folder, line, reason):
    graph_folder.triples.insert(7, line)
    found = load_collection(graph_folder.write())
    (entry,) = found.quarantine.to_dict("records")
    assert entry["kind"] == "triple"
    assert (entry["id"], entry["line"], entry["reason"]) == (line.split("\t", maxsplit=1)[0], 9, reason)
    assert entry["file"].endswith("triples.tsv")
    assert len(found.graph) == 30


def test_entities_without_a_type_have_the_ranges_they_are_in(graph_folder):
    for i in (10, 11, 12):
        del graph_folder.entities[i]["types"]
    graph_folder.entities[5]["types"] = []
    graph_folder.triples.append(f"{BASE}City_0\tneighbour\t{BASE}Country_2")
    found = load_collection(graph_folder.write())
    types = types_of(found)
    assert types[f"{BASE}Country_0"] == ["range:country"]
    assert types[f"{BASE}Country_2"] == ["range:country", "range:neighbour"]
    assert types[f"{BASE}City_5"] == []
    assert types[f"{BASE}City_4"] == ["city"]
    assert found.notes["entities without a type"] == 4
    assert found.notes["entities without a type or a range"] == 1
    assert "entities whose types are no list of names" not in found.notes


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("City_0", 0),
        ({"head": "City_0"}, 0),
        ([["City_0", "country"]], 0),
        ([["City_0", "country", "Country_0", "train"]], 0),
        ([["City_0", "country", None], ["City_0", "people", "0000"]], 1),
        ([["City_0", "people", ["0000"]]], 0),
        ([["", "people", "0000"], "City_0"], 0),
    ],
)
def test_malformed_triples_of_a_document(graph_folder, written, kept):
    graph_folder.documents[4]["metadata"]["triples"] = written
    found = load_collection(graph_folder.write())
    assert len(facts_of(found, "d4")) == kept
    (entry,) = found.quarantine.to_dict("records")
    assert (entry["kind"], entry["id"], entry["line"]) == ("fact", "d4", 5)
    assert entry["file"].endswith("corpus.jsonl")
    assert "metadata.triples" in entry["reason"]
    assert "d4" in set(found.corpus.document_id)

    graph_folder.documents[5]["metadata"]["triples"] = written
    with pytest.raises(AnmiError, match=r'2 of 40 documents are damaged.*corpus.jsonl line 5, "d4": metadata.triples'):
        load_collection(graph_folder.write())


def no_entities(folder):
    (folder.path.parent / "entities.jsonl").unlink()


def no_triples(folder):
    (folder.path.parent / "triples.tsv").unlink()


def no_graph(folder):
    no_entities(folder)
    no_triples(folder)


def no_folder(folder):
    folder.path.rename(folder.path.with_name("gone"))


def no_corpus(folder):
    (folder.path / "corpus.jsonl").unlink()


def two_of_rdf(folder):
    no_graph(folder)
    for name in ("a.ttl", "b.nt"):
        (folder.path / name).write_text("")


def change(name, function):
    def damage(folder):
        path = folder.path.parent / name
        path.write_text("".join(f"{line}\n" for line in function(path.read_text().splitlines())))

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (no_entities, ["small", "world", "has entities.jsonl", "put it there", "graph.ttl"]),
        (no_triples, ["has triples.tsv", "put it there"]),
        (no_graph, ["has entities.jsonl and triples.tsv", "put them there"]),
        (no_folder, ["small is not a folder", "kg:DIR"]),
        (no_corpus, ["corpus.jsonl does not exist"]),
        (two_of_rdf, ["a.ttl and b.nt", "graph.ttl or graph.nt"]),
        (change("triples.tsv", lambda lines: lines[1:]), ["triples.tsv line 1", "not the header", "head<TAB>relation"]),
        (change("triples.tsv", lambda lines: [lines[0].replace("\t", " ")]), ["line 1 is not the header"]),
        (change("triples.tsv", lambda lines: lines[:1]), ["triples.tsv", "no rows"]),
        (change("triples.tsv", lambda lines: []), ["triples.tsv is empty"]),
        (change("entities.jsonl", lambda lines: [*lines, lines[2]]), ["line 14", "repeats", "City_2", "line 3"]),
        (change("entities.jsonl", lambda lines: ["{", *lines]), ["entities.jsonl line 1", "not valid JSON"]),
        (change("entities.jsonl", lambda lines: ['{"label": "a"}']), ["entities.jsonl line 1", 'no "uri"']),
        (change("entities.jsonl", lambda lines: ['{"uri": 3}']), ["entities.jsonl line 1", "no text"]),
        (change("entities.jsonl", lambda lines: ['{"uri": " "}']), ["entities.jsonl line 1", 'an empty "uri"']),
    ],
)
def test_fatal_damage_names_its_place(graph_folder, damage, words):
    collection = graph_folder.write()
    damage(graph_folder)
    with pytest.raises(AnmiError) as caught:
        load_collection(collection)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def webnlg(shared_data):
    return load_collection(f"kg:{shared_data / 'kg_webnlg' / 'beir_en'}")


@pytest.mark.data
def test_webnlg_is_read_whole(webnlg):
    assert (len(webnlg.entities), len(webnlg.graph), len(webnlg.corpus)) == (2463, 4351, 16528)
    assert webnlg.facts.document_id.nunique() == 16528
    assert set(webnlg.quarantine.kind) == {"query"}
    assert set(webnlg.notes) == {"graph"}, "all is typed, and all that is stated is in the graph"
    assert set(webnlg.graph["head"]) <= set(webnlg.entities.uri)
    assert facts_of(webnlg, "t0") == [["http://dbpedia.org/resource/Aarhus_Airport", "cityServed", '"Aarhus, Denmark"']]


@pytest.mark.data
def test_what_webnlg_entails_is_what_its_equivalents_are(webnlg):
    ids = webnlg.corpus.document_id.tolist()
    known = KnowledgeGraph.from_tables(webnlg.entities, webnlg.graph, webnlg.facts, ids)
    assert known.about.min() >= 0
    assert len(known.triples) == 4351
    row = {name: index for index, name in enumerate(ids)}
    queries = {name: index for index, name in enumerate(webnlg.queries.query_id)}
    positives = Positives(webnlg.qrels, row).of(list(queries))
    found = known.entailing(positives).tocoo()
    expected = {
        (queries[query], row[document])
        for table in (webnlg.equivalents, webnlg.qrels)
        for query, document in zip(table.query_id, table.document_id, strict=True)
    }
    assert set(zip(found.row.tolist(), found.col.tolist(), strict=True)) == expected
    assert len(superset_of_triples(webnlg.corpus, webnlg.qrels)) == len(expected) - len(webnlg.qrels)
