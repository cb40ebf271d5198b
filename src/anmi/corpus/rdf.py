"""A graph as RDF: Turtle and N-Triples."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

from anmi.corpus.graph_tables import GraphTables
from anmi.corpus.jsonl import clean, read_lines, to_json
from anmi.corpus.names import last_segment
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
_SAYS_NOTHING: Final = frozenset({f"{_OWL}Thing", f"{_OWL}NamedIndividual", f"{_RDFS}Resource"})
# Else a name without a base would begin with the folder of the file, and be another one on each machine.
_BASE: Final = "http://no-base.invalid/"
_LABEL: Final = f"{_RDFS}label"
_TYPE: Final = f"{_RDF}type"
_ABOVE: Final = f"{_RDFS}subClassOf"
# In order of preference.
_DESCRIPTIONS: Final = {
    f"{_RDFS}comment": 0,
    "http://dbpedia.org/ontology/abstract": 1,
    "http://schema.org/description": 2,
    "https://schema.org/description": 2,
}
_TEXT_TYPES: Final = frozenset({None, "http://www.w3.org/2001/XMLSchema#string", f"{_RDF}langString"})


class Statement(NamedTuple):
    """A triple without blank nodes; ``entity`` tells whether the tail is a URI, ``language`` that of a literal."""

    head: str
    relation: str
    tail: str
    entity: bool
    language: str


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
    show_progress
        Whether a large file shows a bar.

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
        import rdflib  # noqa: F401
    except ImportError as error:
        raise AnmiError(f'{path} needs the package rdflib to be read: pip install "anmi[rdf]"') from error
    bad: list[tuple[str, str, str, int, str]] = []
    kept = _Kept()
    with _as_written():
        if path.suffix == ".nt":
            _read_ntriples(path, kept, bad)
        else:
            _read_turtle(path, kept)
    if not kept.statements:
        raise AnmiError(f"{path} holds no triple that names its head and its tail; at least one was expected")
    entities, graph, left_out = _tables(kept.statements, language)
    counts = {"triples with a blank node": kept.blank, "triples about names and classes": left_out}
    size = len(kept.statements) + kept.blank + len(bad)
    return GraphTables(entities, graph, table_of(bad), size, {name: n for name, n in counts.items() if n})


class _Kept:
    """Takes triples as rdflib reads them; blank nodes are other ones in every process, so these are only counted."""

    def __init__(self) -> None:
        from rdflib import BNode, Literal

        self.statements: list[Statement] = []
        self.blank = 0
        self._blank_node: type = BNode
        self._literal: type = Literal

    def triple(self, head: Any, relation: Any, tail: Any) -> None:
        if isinstance(head, self._blank_node) or isinstance(tail, self._blank_node):
            self.blank += 1
            return
        literal = isinstance(tail, self._literal)
        datatype = str(tail.datatype) if literal and tail.datatype is not None else None
        text = clean(f'"{tail}"' if literal and datatype in _TEXT_TYPES else str(tail))
        language = (tail.language or "").lower() if literal else ""
        self.statements.append(Statement(clean(str(head)), clean(str(relation)), text, not literal, language))


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


def _read_ntriples(path: Path, kept: _Kept, bad: list[tuple[str, str, str, int, str]]) -> None:
    from rdflib.exceptions import ParserError
    from rdflib.plugins.parsers.ntriples import W3CNTriplesParser

    parser: Any = W3CNTriplesParser(sink=kept)  # type: ignore[arg-type]
    for number, line in read_lines(path):
        parser.line = line
        try:
            parser.parseline()
        except ParserError:
            bad.append(("triple", line.split(maxsplit=1)[0], str(path), number, "the line is not valid N-Triples"))


def _read_turtle(path: Path, kept: _Kept) -> None:
    from rdflib import Graph
    from tqdm import tqdm

    # For its errors: a file that is missing, empty or not UTF-8.
    deque(read_lines(path), maxlen=0)
    with tqdm(desc=path.name, unit="triple", unit_scale=True, delay=2) as bar:

        class Listener(Graph):
            """Passes triples on and keeps none."""

            def add(self, triple: Any) -> Listener:
                kept.triple(*triple)
                bar.update()
                return self

        text = path.read_text(encoding="utf-8-sig")
        try:
            Listener().parse(data=text, format="turtle", publicID=_BASE)
        except (SyntaxError, ValueError, RecursionError) as error:
            # rdflib counts some lines twice, but knows at which character it stopped.
            stopped: int | None = getattr(error, "_i", None)
            line = "" if stopped is None else f" line {text.count(chr(10), 0, stopped) + 1}"
            reason = " ".join(str(getattr(error, "_why", error)).split())[:200]
            raise AnmiError(
                f"{path}{line} is not valid Turtle ({reason}); correct the statement that ends or begins there"
            ) from None


def _tables(statements: list[Statement], language: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Return the entities, the graph, and how many triples belong to neither."""
    labels: dict[str, tuple[int, str, str]] = {}
    descriptions: dict[str, tuple[int, int, str, str]] = {}
    types: dict[str, list[str]] = {}
    above: dict[str, list[str]] = {}
    graph: dict[tuple[str, str, str], None] = {}
    # In the order of the file.
    mentioned: dict[str, None] = {}
    entities: set[str] = set()
    left_out = 0
    for head, relation, tail, is_uri, tag in statements:
        mentioned[head] = None
        if relation == _LABEL and not is_uri:
            found = _rank(tag, language), tag, _unquoted(tail)
            labels[head] = min(labels.get(head, found), found)
        elif relation in _DESCRIPTIONS and not is_uri:
            text = _rank(tag, language), _DESCRIPTIONS[relation], tag, _unquoted(tail)
            descriptions[head] = min(descriptions.get(head, text), text)
        elif relation == _TYPE and is_uri:
            types.setdefault(head, []).append(tail)
        elif relation == _ABOVE and is_uri:
            above.setdefault(head, []).append(tail)
        elif relation.startswith(_VOCABULARIES):
            left_out += 1
        else:
            graph[head, relation, tail] = None
            entities.add(head)
            if is_uri:
                mentioned[tail] = None
                entities.add(tail)
    classes = _classes(types, above)
    rows = []
    for uri in mentioned:
        if uri in entities or (uri not in classes and uri in types.keys() | labels.keys() | descriptions.keys()):
            own = _with_above(types.get(uri, ()), above)
            label = labels.get(uri, (0, "", ""))[-1].strip() or last_segment(uri)
            rows.append((uri, label, to_json(own), descriptions.get(uri, (0, 0, "", ""))[-1]))
    table = pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")
    return table, pd.DataFrame(list(graph), columns=["head", "relation", "tail"], dtype="str"), left_out


def _rank(tag: str, language: str) -> int:
    order = (language, "en", "")
    base = tag.partition("-")[0]
    return order.index(base) if base in order else len(order)


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text


def _classes(types: dict[str, list[str]], above: dict[str, list[str]]) -> set[str]:
    """Return what is a class, a property or an ontology."""
    named = {name for names in (*types.values(), *above.values()) for name in names}
    declared = {
        uri
        for uri, names in types.items()
        if any(n.startswith(_VOCABULARIES) and n not in _SAYS_NOTHING for n in names)
    }
    return named | declared | set(above)


def _with_above(own: Iterable[str], above: dict[str, list[str]]) -> list[str]:
    """Return classes with all above them, the nearest first, each once; a class may stand above itself."""
    found: dict[str, None] = {}
    waiting = deque(own)
    while waiting:
        name = waiting.popleft()
        if name not in found:
            found[name] = None
            waiting.extend(above.get(name, ()))
    return [name for name in found if not name.startswith(_VOCABULARIES)]
