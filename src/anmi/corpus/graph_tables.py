"""A graph as two files: ``entities.jsonl`` and ``triples.tsv``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.jsonl import clean, read_lines, read_objects, string, to_json
from anmi.corpus.texts import among, column, containing, taken
from anmi.corpus.types import ENTITY_COLUMNS, FACT_COLUMNS, QUARANTINE_COLUMNS, empty, table_of
from anmi.errors import AnmiError

Triple = tuple[str, str, str]


def last_segment(uri: str) -> str:
    """Return what a URI ends in, with blanks for underscores; its label where it has none of its own.

    Examples
    --------
    >>> last_segment("http://dbpedia.org/resource/Aarhus_Airport"), last_segment("http://example.org/city#Aarhus")
    ('Aarhus Airport', 'Aarhus')
    """
    kept = uri.rstrip("/#")
    return kept[max(kept.rfind("/"), kept.rfind("#")) + 1 :].replace("_", " ").strip() or uri


class Names:
    """Finds which URIs a name may stand for: the URI itself, or all of it after one of its slashes.

    Parameters
    ----------
    uris
        All that may be meant.

    Examples
    --------
    >>> names = Names(["http://x.org/r/Paris", "http://x.org/r/HIV/AIDS", "http://y.org/Paris"])
    >>> names.of("HIV/AIDS"), names.of("AIDS"), names.of("Rome")
    (('http://x.org/r/HIV/AIDS',), ('http://x.org/r/HIV/AIDS',), ())
    >>> names.of("Paris")
    ('http://y.org/Paris', 'http://x.org/r/Paris')
    """

    def __init__(self, uris: Iterable[str]) -> None:
        self._all = frozenset(uris)
        self._short: dict[str, tuple[str, ...]] = {}
        for uri in sorted(self._all, key=lambda uri: (len(uri), uri)):
            for name in set(_endings(uri)):
                self._short[name] = (*self._short.get(name, ()), uri)

    def __contains__(self, uri: object) -> bool:
        return uri in self._all

    def of(self, name: str) -> tuple[str, ...]:
        """Return the URIs that a name may stand for, the shortest first; empty where there are none."""
        return (name,) if name in self._all else self._short.get(name, ())

    def best(self, name: str) -> str:
        """Return the URI that a name stands for, and the name as it is where none or no single one does.

        Of ``http://x.org/AIDS`` and ``http://x.org/HIV/AIDS`` the first is meant: the second has a longer name there.
        ``Paris`` of two unrelated places stays ``Paris``.
        """
        found = self.of(name)
        if not found:
            return name
        place = found[0].removesuffix(name)
        return found[0] if all(other.startswith(place) for other in found) else name


def _endings(uri: str) -> Iterator[str]:
    start = uri.find("://") + 3 if "://" in uri else 0
    for place in range(start, len(uri) - 1):
        if uri[place] in "/#":
            yield uri[place + 1 :]


class Resolver:
    """Writes a document's triple as the graph writes it.

    Parameters
    ----------
    entities, relations
        Names of both.
    known
        The triples of the graph, which tell what an ambiguous name means.

    Examples
    --------
    >>> known = {("http://x.org/Aarhus", "country", "http://x.org/Denmark"), ("http://x.org/Aarhus", "size", '"91"')}
    >>> resolve = Resolver(Names(["http://x.org/Aarhus", "http://x.org/Denmark"]), Names(["country", "size"]), known)
    >>> resolve(("Aarhus", "country", "Denmark"))
    ('http://x.org/Aarhus', 'country', 'http://x.org/Denmark')
    >>> resolve(("Aarhus", "size", "91")), resolve(("Aarhus", "country", '"Denmark"'))
    (('http://x.org/Aarhus', 'size', '"91"'), ('http://x.org/Aarhus', 'country', '"Denmark"'))
    """

    def __init__(self, entities: Names, relations: Names, known: Collection[Triple]) -> None:
        self._entities, self._relations, self._known = entities, relations, known
        # The same triple stands in many documents.
        self._done: dict[Triple, Triple] = {}

    def __call__(self, triple: Triple) -> Triple:
        """Return the triple of the graph that is meant; where there is none, its names as URIs where these are clear.

        A tail in quotation marks is a literal, and never an entity of that name.
        """
        if triple not in self._done:
            self._done[triple] = self._resolve(*triple)
        return self._done[triple]

    def _resolve(self, head: str, relation: str, tail: str) -> Triple:
        literal = is_quoted(tail)
        heads = self._entities.of(head) or (head,)
        tails = (tail, tail[1:-1]) if literal else (tail, *self._entities.of(tail), f'"{tail}"')
        for found in product(heads, (relation, *self._relations.of(relation)), tails):
            if found in self._known:
                return found
        tail = tail if literal else self._entities.best(tail)
        return self._entities.best(head), self._relations.best(relation), tail


def is_quoted(text: str) -> bool:
    """Return whether a text stands in quotation marks, as a literal does."""
    return len(text) > 1 and text[0] == text[-1] == '"'


_HEADER: Final = ("head", "relation", "tail")


@dataclass(frozen=True)
class GraphTables:
    """A graph as it was read.

    Attributes
    ----------
    entities
        ``uri, label, types, description``, types as a JSON list of different names; URIs are unique.
    graph
        ``head, relation, tail``, each once; every head is an entity.
    set_aside
        ``kind, id, file, line, reason``: lines that are no triple of an entity.
    size
        How many lines or triples were read.
    notes
        Counts of what was mended or left out.
    """

    entities: pd.DataFrame
    graph: pd.DataFrame
    set_aside: pd.DataFrame
    size: int
    notes: dict[str, Any] = field(default_factory=dict)


def read_tables(entities: Path, triples: Path) -> GraphTables:
    """Read both files.

    Parameters
    ----------
    entities
        Lines with ``uri`` and maybe ``label``, ``types`` (a list) and ``description``; other keys are left out.
    triples
        ``head, relation, tail`` and maybe ``split``, separated by tabs, below a header. A tail in quotation marks, or
        one that is no entity, is a literal.
    show_progress
        Whether a large file shows a bar.

    Raises
    ------
    AnmiError
        If a file is missing or not in this form, or an entity stands there twice. A damaged triple is set aside.
    """
    known, notes = read_entities(entities)
    found, aside = _read_triples(triples)
    unknown = ~found["head"].isin(known["uri"])
    reasons = [f"the head is {'a literal' if is_quoted(head) else 'no entity'}" for head in found["head"][unknown]]
    rows = found[unknown].assign(reason=reasons, kind="triple").rename(columns={"head": "id"})
    aside_all = pd.concat([aside, rows[list(QUARANTINE_COLUMNS)]], ignore_index=True).sort_values("line", kind="stable")
    graph = found.loc[~unknown, list(_HEADER)].drop_duplicates().reset_index(drop=True)
    foreign = int((graph["tail"].str.contains("://", regex=False) & ~graph["tail"].isin(known["uri"])).sum())
    if foreign:
        notes["tails that are URIs of no entity"] = foreign
    return GraphTables(known, graph, table_of(aside_all.itertuples(index=False)), len(found) + len(aside), notes)


def read_entities(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read ``entities.jsonl``.

    Returns
    -------
    pandas.DataFrame
        ``uri, label, types, description``, types as a JSON list.
    dict
        How many entities lack a label, or have types that are no list of names.

    Raises
    ------
    AnmiError
        If a line has no ``uri`` or one that an earlier line has.
    """
    lines: dict[str, int] = {}
    rows: list[tuple[str, str, str, str]] = []
    notes: Counter[str] = Counter()
    for number, value in read_objects(path):
        uri = string(value, "uri", path, number).strip()
        if not uri:
            raise AnmiError(f'{path} line {number} has an empty "uri"; every line needs a "uri" that is a string')
        if uri in lines:
            raise AnmiError(
                f'{path} line {number} repeats the entity "{uri}" of line {lines[uri]}; an entity may stand there once'
            )
        lines[uri] = number
        label, written, description = (value.get(key) for key in ("label", "types", "description"))
        types, sound = _types(written)
        notes["entities whose types are no list of names"] += not sound
        if not isinstance(label, str) or not label.strip():
            notes["entities without a label"] += 1
            label = last_segment(uri)
        rows.append((uri, clean(label).strip(), types, clean(description) if isinstance(description, str) else ""))
    return pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str"), {k: n for k, n in notes.items() if n}


def _types(written: Any) -> tuple[str, bool]:
    """Return the types as JSON, each once and without empty ones, and whether they were a list of names."""
    # One type is often written without its brackets.
    listed = written if isinstance(written, list) else [written] if isinstance(written, str) else []
    names = [clean(name).strip() for name in listed if isinstance(name, str) and name.strip()]
    sound = written is None or (isinstance(written, list) and len(names) == len(written))
    return to_json(list(dict.fromkeys(names))), sound


def _read_triples(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``head, relation, tail, file, line`` and the lines that are no triples."""
    rows: list[tuple[str, str, str, int]] = []
    bad: list[tuple[str, str, str, int, str]] = []
    lines = ((number, [clean(value).strip() for value in line.split("\t")]) for number, line in read_lines(path))
    first, header = next(lines)
    if tuple(header) not in (_HEADER, (*_HEADER, "split")):
        raise AnmiError(
            f"{path} line {first} is not the header; put head<TAB>relation<TAB>tail, and maybe <TAB>split, in the "
            "first line"
        )
    for number, fields in lines:
        if len(fields) not in (3, 4):
            reason = f"{len(fields)} columns where head, relation, tail and maybe split were expected"
            bad.append(("triple", fields[0], str(path), number, reason))
        elif not all(fields[:3]):
            bad.append(("triple", fields[0], str(path), number, "the head, the relation or the tail is empty"))
        else:
            rows.append((fields[0], fields[1], fields[2], number))
    if not rows and not bad:
        raise AnmiError(f"{path} has a header and no rows; at least one triple was expected")
    table = pd.DataFrame(rows, columns=[*_HEADER, "line"]).astype(dict.fromkeys(_HEADER, "str") | {"line": "int64"})
    return table.assign(file=str(path)), table_of(bad)


def triples_of(metadata: str) -> tuple[list[Triple], bool]:
    """Return the triples of ``metadata.triples``, and whether all that stands there is triples.

    Parameters
    ----------
    metadata
        A JSON object. A triple is a list of three texts or numbers, none of them empty.

    Examples
    --------
    >>> triples_of('{"triples": [["a", "size", 3]]}'), triples_of("{}"), triples_of('{"triples": [["a", "b"]]}')
    (([('a', 'size', '3')], True), ([], True), ([], False))
    """
    # Most metadata have none, and need not be parsed.
    written = json.loads(metadata).get("triples") if '"triples"' in metadata else None
    if not isinstance(written, list):
        return [], written is None
    sound = [item for item in written if _is_triple(item)]
    return [(str(head), str(relation), str(tail)) for head, relation, tail in sound], len(sound) == len(written)


def _is_triple(item: object) -> bool:
    parts = item if isinstance(item, list) else []
    return len(parts) == 3 and all(isinstance(part, (str, int, float)) and str(part).strip() for part in parts)


def stated_facts(
    corpus: pd.DataFrame, graph: pd.DataFrame, resolve: Callable[[Triple], Triple] | None = None
) -> pd.DataFrame:
    """Return the facts that documents state: their triples in the graph, and those of ``metadata.triples``.

    Parameters
    ----------
    corpus
        ``document_id, metadata``, metadata as a JSON string.
    graph
        ``head, relation, tail``; a head that is a document states the triple.
    resolve
        Writes a triple of the metadata as the graph does; ``None`` takes it as it is written.

    Returns
    -------
    pandas.DataFrame
        ``document_id, head, relation, tail``, each once, in the order of the corpus.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": ["a", "b"], "metadata": ["{}", '{"triples": [["x", "is", "y"]]}']})
    >>> graph = pd.DataFrame({"head": ["a", "z"], "relation": ["kind", "kind"], "tail": ["function", "class"]})
    >>> stated_facts(corpus, graph).to_numpy().tolist()
    [['a', 'a', 'kind', 'function'], ['b', 'x', 'is', 'y']]
    """
    own = graph[among(graph["head"], corpus["document_id"])]
    rows = list(zip(*(own[name].tolist() for name in ("head", "head", "relation", "tail")), strict=True))
    # Most metadata have none, and need not be parsed.
    telling = containing(corpus["metadata"], '"triples"')
    found = zip(taken(corpus["document_id"], telling), taken(corpus["metadata"], telling), strict=True)
    for document, text in found:
        rows += [(document, *(resolve(triple) if resolve else triple)) for triple in triples_of(text)[0]]
    if not rows:
        return empty(*FACT_COLUMNS)
    columns = zip(FACT_COLUMNS, zip(*rows, strict=True), strict=True)
    table = pd.DataFrame({name: column(values) for name, values in columns}).drop_duplicates()
    order = pd.Series(range(len(corpus)), index=corpus["document_id"])
    return table.iloc[order.loc[table["document_id"]].argsort(kind="stable").to_numpy()].reset_index(drop=True)
