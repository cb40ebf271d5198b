"""A graph as RDF: Turtle and N-Triples."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.graph_tables import GraphTables, last_segment
from anmi.corpus.jsonl import clean, read_lines, to_json
from anmi.corpus.quarantine import table_of
from anmi.corpus.types import ENTITY_COLUMNS
from anmi.errors import AnmiError

SUFFIXES: Final = (".ttl", ".nt")
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS: Final = "http://www.w3.org/2000/01/rdf-schema#"
_OWL: Final = "http://www.w3.org/2002/07/owl#"
# What these say is about names and classes, not about entities.
_VOCABULARIES: Final = (_RDF, _RDFS, _OWL)
# Everything is one of these, so they tell no entity from another.
_SAYS_NOTHING: Final = (f"{_OWL}Thing", f"{_OWL}NamedIndividual", f"{_RDFS}Resource")
# Else a name without a base would begin with the folder of the file, and be another one on each machine.
_BASE: Final = "http://no-base.invalid/"
# In order of preference.
_DESCRIPTIONS: Final = (
    f"{_RDFS}comment",
    "http://dbpedia.org/ontology/abstract",
    "http://schema.org/description",
    "https://schema.org/description",
)
_TEXT_TYPES: Final = (None, "http://www.w3.org/2001/XMLSchema#string", f"{_RDF}langString")


def read_rdf(path: Path, language: str) -> GraphTables:
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
    GraphTables
        Entities are all heads and tails of the graph, and what else has a label, type or description and is no class;
        in the order of the file.

    Raises
    ------
    AnmiError
        If rdflib is not installed or the file is not Turtle. A line that is no N-Triple is set aside.
    """
    try:
        import rdflib
    except ImportError as error:
        raise AnmiError(f'{path} needs the package rdflib to be read: pip install "anmi[rdf]"') from error
    bad: list[tuple[str, str, str, int, str]] = []
    listed: list[Any] = []

    class Listing(rdflib.Graph):
        """Notes in which order the triples come."""

        def add(self, triple: Any) -> Any:
            listed.append(triple)
            return super().add(triple)

    graph = Listing()
    with _as_written():
        if path.suffix == ".nt":
            _read_ntriples(path, graph, bad)
        else:
            _read_turtle(path, graph)
    triples = [each for each in dict.fromkeys(listed) if not any(isinstance(node, rdflib.BNode) for node in each)]
    if not triples:
        raise AnmiError(f"{path} holds no triple that names its head and its tail; at least one was expected")
    entities, facts, left_out = _tables(graph, triples, language)
    counts = {"triples with a blank node": len(graph) - len(triples), "triples about names and classes": left_out}
    size = len(graph) + len(bad)
    return GraphTables(entities, facts, table_of(bad), size, {name: n for name, n in counts.items() if n})


@contextmanager
def _as_written() -> Iterator[None]:
    """Keep rdflib from rewriting ``01.50`` to ``1.5``, and from warning of every URI and date that is not in order."""
    import rdflib

    logger = logging.getLogger("rdflib")
    before = rdflib.NORMALIZE_LITERALS, logger.level
    rdflib.NORMALIZE_LITERALS = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        rdflib.NORMALIZE_LITERALS = before[0]
        logger.setLevel(before[1])


def _read_ntriples(path: Path, graph: Any, bad: list[tuple[str, str, str, int, str]]) -> None:
    from rdflib.exceptions import ParserError
    from rdflib.plugins.parsers.ntriples import NTGraphSink, W3CNTriplesParser

    parser: Any = W3CNTriplesParser(sink=NTGraphSink(graph))
    for number, line in read_lines(path):
        parser.line = line
        try:
            parser.parseline()
        except ParserError:
            bad.append(("triple", line.split(maxsplit=1)[0], str(path), number, "the line is not valid N-Triples"))


def _read_turtle(path: Path, graph: Any) -> None:
    # For its errors: a file that is missing, empty or not UTF-8.
    deque(read_lines(path), maxlen=0)
    text = path.read_text(encoding="utf-8-sig")
    try:
        graph.parse(data=text, format="turtle", publicID=_BASE)
    except (SyntaxError, ValueError, RecursionError) as error:
        # rdflib counts some lines twice, but knows at which character it stopped.
        stopped: int | None = getattr(error, "_i", None)
        line = "" if stopped is None else f" line {text.count(chr(10), 0, stopped) + 1}"
        reason = " ".join(str(getattr(error, "_why", error)).split())[:200]
        raise AnmiError(
            f"{path}{line} is not valid Turtle ({reason}); correct the statement that ends or begins there"
        ) from None


def _tables(graph: Any, triples: list[Any], language: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Return the entities, the graph, and how many triples belong to neither."""
    from rdflib import RDF, RDFS, Literal, URIRef

    facts: dict[tuple[str, str, str], None] = {}
    mentioned: dict[Any, None] = {}
    entities, described, left_out = set(), set(), 0
    for head, relation, tail in triples:
        mentioned[head] = None
        text = isinstance(tail, Literal)
        if str(relation) in (str(RDFS.label), *_DESCRIPTIONS) if text else relation in (RDF.type, RDFS.subClassOf):
            described.add(head)
        elif str(relation).startswith(_VOCABULARIES):
            left_out += 1
        else:
            entities |= {head} if text else {head, tail}
            mentioned |= {} if text else {tail: None}
            quoted = text and (None if tail.datatype is None else str(tail.datatype)) in _TEXT_TYPES
            facts[clean(str(head)), clean(str(relation)), clean(f'"{tail}"' if quoted else str(tail))] = None
    classes = {*graph.objects(None, RDF.type), *graph.subjects(RDFS.subClassOf), *graph.objects(None, RDFS.subClassOf)}
    classes |= {
        one
        for one, kind in graph.subject_objects(RDF.type)
        if str(kind).startswith(_VOCABULARIES) and str(kind) not in _SAYS_NOTHING
    }

    def said(node: Any, *relations: str) -> str:
        """Return the text that is preferred: by language, then by relation."""
        order = (language, "en", "")
        texts = [
            (order.index(tag) if tag in order else len(order), number, text.language or "", str(text))
            for number, relation in enumerate(relations)
            for text in graph.objects(node, URIRef(relation))
            if isinstance(text, Literal)
            for tag in [(text.language or "").lower().partition("-")[0]]
        ]
        return clean(min(texts)[-1]) if texts else ""

    rows = []
    for node in mentioned:
        if node not in entities and (node in classes or node not in described):
            continue
        kinds = dict.fromkeys(
            clean(str(above))
            for kind in graph.objects(node, RDF.type)
            for above in graph.transitive_objects(kind, RDFS.subClassOf)
            if not str(above).startswith(_VOCABULARIES)
        )
        name = clean(str(node))
        label = said(node, str(RDFS.label)).strip() or last_segment(name)
        rows.append((name, label, to_json(list(kinds)), said(node, *_DESCRIPTIONS)))
    table = pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")
    return table, pd.DataFrame(list(facts), columns=["head", "relation", "tail"], dtype="str"), left_out
