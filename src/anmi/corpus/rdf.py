"""The module reads a graph from Turtle, and from N-Triples, which are Turtle too, by rdflib."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.kg import Graph, last_segment
from anmi.corpus.rows import read_lines
from anmi.corpus.texts import clean, to_json
from anmi.corpus.types import ENTITY_COLUMNS, table_of
from anmi.errors import AnmiError, installed

# Without a base, relative names would begin with the folder of the file, and differ between machines.
_BASE: Final = "http://no-base.invalid/"


def read_rdf(path: Path, language: str) -> Graph:
    """Read a graph in Turtle (``*.ttl``) or N-Triples (``*.nt``).

    ``rdfs:label``, ``rdf:type`` and a description (``rdfs:comment``, else ``dbo:abstract``, else
    ``schema:description``) belong to the entity, every other triple to the graph, but for those in the terms of RDF,
    RDFS and OWL. An entity of a class is one of the classes above it, too. A text becomes a tail in quotation marks;
    numbers, dates and the like go without, as they are written.

    Parameters
    ----------
    path
        The file.
    language
        ISO 639-1 code of the labels that are preferred; then come English ones, those of no language, and the rest.

    Returns
    -------
    Graph
        Entities are all heads and tails of the graph, and what else has a label, type or description and is no class;
        in the order of the file.

    Raises
    ------
    AnmiError
        If rdflib is not installed or the file is not Turtle.
    """
    installed("rdflib", str(path), "rdf")
    from rdflib import OWL, RDF, RDFS, XSD, BNode, Literal, URIRef

    graph = _parsed(path)
    names = ("http://dbpedia.org/ontology/abstract", "http://schema.org/description", "https://schema.org/description")
    described_by = [RDFS.comment, *map(URIRef, names)]
    order, texts = (language, "en", ""), (None, XSD.string, RDF.langString)

    def of_schema(node: Any) -> bool:
        return str(node).startswith((str(RDF), str(RDFS), str(OWL)))

    def said(node: Any, *relations: Any) -> str:
        """Return the text that is preferred: by language, then by relation."""
        found = [
            (order.index(tag) if tag in order else len(order), number, text.language or "", str(text))
            for number, relation in enumerate(relations)
            for text in graph.objects(node, relation)
            if isinstance(text, Literal)
            for tag in [(text.language or "").lower().partition("-")[0]]
        ]
        return clean(min(found)[-1]) if found else ""

    # Everything is one of these, so they make no class; the other kinds of OWL are those of classes.
    instances = (OWL.Thing, OWL.NamedIndividual, RDFS.Resource)
    above = RDFS.subClassOf
    classes = {*graph.subjects(above), *graph.objects(None, above), *graph.objects(None, RDF.type)}
    classes |= {node for node, kind in graph.subject_objects(RDF.type) if of_schema(kind) and kind not in instances}
    nodes: dict[Any, bool] = {}
    facts, left_out, blank = [], 0, 0
    for triple in graph:
        head, relation, tail = triple
        text = isinstance(tail, Literal)
        if any(isinstance(node, BNode) for node in triple):
            blank += 1
        elif relation in ([RDFS.label, *described_by] if text else [RDF.type, above]):
            nodes.setdefault(head, head not in classes)
        elif of_schema(relation):
            left_out += 1
        else:
            nodes |= {head: True} if text else {head: True, tail: True}
            written = f'"{tail}"' if text and tail.datatype in texts else str(tail)
            facts.append((clean(str(head)), clean(str(relation)), clean(written)))
    if blank == len(graph):
        raise AnmiError(f"{path} holds no triple that names its head and its tail; at least one was expected")
    rows = []
    for node in (node for node, kept in nodes.items() if kept):
        kinds = (kind for own in graph.objects(node, RDF.type) for kind in graph.transitive_objects(own, above))
        types = dict.fromkeys(clean(str(kind)) for kind in kinds if not of_schema(kind))
        label = said(node, RDFS.label).strip() or last_segment(clean(str(node)))
        rows.append((clean(str(node)), label, to_json(list(types)), said(node, *described_by)))
    entities = pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")
    triples = pd.DataFrame(facts, columns=["head", "relation", "tail"], dtype="str").drop_duplicates(ignore_index=True)
    counts = {"triples with a blank node": blank, "triples about names and classes": left_out}
    return Graph(entities, triples, table_of(), len(graph), {name: n for name, n in counts.items() if n})


def _parsed(path: Path) -> Any:
    import rdflib

    text = "\n".join(line for _, line in read_lines(path, blank=True))
    graph = rdflib.Graph("SimpleMemory")  # Which keeps the order.
    # It would rewrite 01.50 to 1.5, and warn of every URI and date that is not in order.
    before, rdflib.NORMALIZE_LITERALS = rdflib.NORMALIZE_LITERALS, False
    logging.getLogger("rdflib").setLevel(logging.ERROR)
    try:
        return graph.parse(data=text, format="turtle", publicID=_BASE)
    except (SyntaxError, ValueError, RecursionError) as error:
        # rdflib counts some lines twice, but knows at which character it stopped.
        stopped: int | None = getattr(error, "_i", None)
        line = "" if stopped is None else f" line {text.count(chr(10), 0, stopped) + 1}"
        reason = " ".join(str(getattr(error, "_why", error)).split())[:200]
        raise AnmiError(
            f"{path}{line} is not valid Turtle ({reason}); correct the statement that ends or begins there"
        ) from None
    finally:
        rdflib.NORMALIZE_LITERALS = before
