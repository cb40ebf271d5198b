"""The module reads a graph of entities from tables or RDF, and holds it and what documents state as arrays."""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from anmi.candidates import PADDING
from anmi.corpus.beir import read_beir
from anmi.corpus.places import inside
from anmi.corpus.rows import read_lines, read_objects
from anmi.corpus.sentences import detect_language
from anmi.corpus.texts import among, clean, containing, joined_texts, pairs_among, taken, to_json
from anmi.corpus.types import (
    ENTITY_COLUMNS,
    FACT_COLUMNS,
    Options,
    RawCollection,
    check_share,
    empty,
    table_of,
)
from anmi.errors import AnmiError, installed
from anmi.ragged import Int32s, Int64s, padded_array, read_table

Triple = tuple[str, str, str]

_BLOCK = 2048
_LITERAL: Final = re.compile(r'"(?P<value>.*)"(?:@[\w-]+|\^\^\S+)?', re.DOTALL)
_TABLES = ("entities", "graph", "facts")
_HEADER: Final = ["head", "relation", "tail"]


@dataclass(frozen=True)
class Knowledge:
    """The tables of what a collection knows about entities.

    Attributes
    ----------
    entities
        ``uri, label, types``, types as a JSON list; without rows where no entity is named.
    graph
        ``head, relation, tail``.
    facts
        What documents state: ``document_id, head, relation, tail``.
    """

    entities: pd.DataFrame
    graph: pd.DataFrame
    facts: pd.DataFrame

    def of(self, document_ids: Sequence[str]) -> KnowledgeGraph:
        """Return the graph of the documents of a corpus, in its order."""
        return KnowledgeGraph.from_tables(self.entities, self.graph, self.facts, document_ids)

    def save(self, path: Path) -> None:
        """Write the three tables into the folder ``path``."""
        for name in _TABLES:
            table = getattr(self, name)
            table.to_parquet(
                path / f"{name}.parquet", index=False, compression="zstd", write_page_checksum=True
            )

    @staticmethod
    def load(path: Path) -> Knowledge:
        """Read what :meth:`save` wrote."""
        return Knowledge(*(read_table(path / f"{name}.parquet").to_pandas() for name in _TABLES))


@dataclass(frozen=True)
class KnowledgeGraph:
    """What is known about entities, and which document states it.

    A node is an entity or a literal; entities come first, so nodes below ``len(uris)`` are
    entities.

    Attributes
    ----------
    uris, labels
        Of the E entities.
    nodes, relations
        Names of the N nodes and R relations.
    triples
        Head, relation and tail of the T different triples that the graph or a document states,
        int64 [T, 3], sorted.
    types
        Which entity has which type, bool [E, K].
    stated
        Which document states which triple, bool [D, T].
    about
        The entity that most facts of a document are about, the first of equals, int32 [D]; -1 where
        there is none.
    """

    uris: tuple[str, ...]
    labels: tuple[str, ...]
    nodes: tuple[str, ...]
    relations: tuple[str, ...]
    triples: Int64s
    types: sparse.csr_array
    stated: sparse.csr_array
    about: Int32s

    @classmethod
    def from_tables(
        cls,
        entities: pd.DataFrame,
        graph: pd.DataFrame,
        facts: pd.DataFrame,
        document_ids: Sequence[str],
    ) -> KnowledgeGraph:
        """Read the tables that ingestion makes.

        Parameters
        ----------
        entities
            ``uri, label, types``, types as a JSON list. A head that is not among them is a node
            without a label.
        graph
            ``head, relation, tail``.
        facts
            ``document_id, head, relation, tail``; a document that is not among ``document_ids`` is
            passed over.
        document_ids
            Of the D documents, in the order of the corpus.

        Examples
        --------
        >>> entities = pd.DataFrame({"uri": ["u:a", "u:b"], "label": ["A", "B"], "types": ['["t"]', '["t"]']})
        >>> facts = pd.DataFrame([("d1", "u:a", "r", "u:b")], columns=["document_id", "head", "relation", "tail"])
        >>> graph = KnowledgeGraph.from_tables(entities, facts[_HEADER], facts, ["d1", "d2"])
        >>> graph.triples.tolist(), graph.about.tolist()
        ([[0, 0, 1]], [0, -1])
        """
        facts = facts[facts.document_id.isin(document_ids)]
        triples_stated = pd.concat([table[_HEADER] for table in (graph, facts)], ignore_index=True)
        codes, nodes = pd.factorize(
            pd.concat([entities.uri, triples_stated["head"], triples_stated["tail"]])
        )
        relation, relations = pd.factorize(triples_stated.relation)
        head, tail = np.split(codes[len(entities) :], 2)
        numbers = np.stack([head, relation, tail], axis=1).astype(np.int64)
        triples, place = np.unique(numbers, axis=0, return_inverse=True)
        row = pd.Index(document_ids).get_indexer(pd.Index(facts.document_id))
        return cls(
            tuple(entities.uri),
            tuple(entities.label),
            tuple(nodes),
            tuple(relations),
            triples,
            types=_types(entities.types.tolist()),
            stated=membership(row, place.ravel()[len(graph) :], (len(document_ids), len(triples))),
            about=_about(row, numbers[len(graph) :, 0], len(document_ids), len(entities)),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """How a text would write each node, N: the label of an entity."""
        return *self.labels, *map(surface, self.nodes[len(self.uris) :])

    def entailing(self, positives: Int32s) -> sparse.csr_array:
        """Return which documents state all facts of one of a query's positives, the positives themselves included.

        Parameters
        ----------
        positives
            Documents, int32 [Q, P], padded with -1; those that state no fact are entailed by none.

        Returns
        -------
        scipy.sparse.csr_array
            bool [Q, D].
        """
        present = positives != PADDING
        documents, place = np.unique(positives[present], return_inverse=True)
        counted = self.stated.astype(np.int32)
        needed = counted[documents]
        transposed = sparse.csc_array(counted.T)
        size = np.asarray(needed.sum(axis=1)).ravel()
        parts = [sparse.csr_array((0, counted.shape[0]), dtype=np.int32)]
        for start in range(0, len(documents), _BLOCK):
            shared = sparse.coo_array(needed[start : start + _BLOCK] @ transposed)
            complete = shared.data == size[start + shared.row]
            found = (
                np.ones(int(complete.sum()), np.int32),
                (shared.row[complete], shared.col[complete]),
            )
            parts.append(sparse.csr_array(found, shared.shape))
        of_query = membership(np.nonzero(present)[0], place, (len(positives), len(documents)))
        result = sparse.csr_array(
            of_query.astype(np.int32) @ sparse.csr_array(sparse.vstack(parts))
        )
        result.sort_indices()
        return sparse.csr_array(result.astype(bool))


def surface(node: str) -> str:
    """Return how a text would write a literal, or a node without a label.

    Examples
    --------
    >>> surface('"Aarhus, Denmark"@en'), surface("solo_singer"), surface("25.0")
    ('Aarhus, Denmark', 'solo singer', '25.0')
    """
    literal = _LITERAL.fullmatch(node)
    return (literal["value"] if literal else node).replace("_", " ")


def membership(rows: Int64s, columns: Int64s, shape: tuple[int, int]) -> sparse.csr_array:
    """Return the matrix of pairs, each once, its columns in ascending order; bool."""
    result = sparse.csr_array((np.ones(len(rows), bool), (rows, columns)), shape)
    result.sum_duplicates()
    result.sort_indices()
    return result


def _types(lists: Sequence[str]) -> sparse.csr_array:
    pairs = [
        (row, name) for row, text in enumerate(lists) for name in dict.fromkeys(json.loads(text))
    ]
    columns, names = pd.factorize(pd.Series([name for _, name in pairs], dtype=object))
    return membership(
        np.array([row for row, _ in pairs], np.int64), columns, (len(lists), len(names))
    )


def _about(row: Int64s, head: Int64s, documents: int, entities: int) -> Int32s:
    pairs = pd.DataFrame({"row": row, "head": head})[head < entities]
    counts = (
        pairs.groupby(["row", "head"], sort=False)
        .size()
        .sort_values(ascending=False, kind="stable")
    )
    # Stable, and groups stand in the order of their first fact.
    first = counts.reset_index().drop_duplicates("row")
    about = np.full(documents, -1, np.int32)
    about[first["row"]] = first["head"]
    return about


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
    sound = [
        (str(item[0]), str(item[1]), str(item[2]))
        for item in written
        if isinstance(item, list)
        and len(item) == 3
        and all(isinstance(part, str | int | float) and str(part).strip() for part in item)
    ]
    return sound, len(sound) == len(written)


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
    of_documents = graph[among(graph["head"], corpus["document_id"])]
    rows = of_documents[["head", *_HEADER]].to_numpy().tolist()
    telling = containing(corpus["metadata"], '"triples"')
    for document, text in zip(
        *(taken(corpus[name], telling) for name in ("document_id", "metadata")), strict=True
    ):
        rows += [
            [document, *(resolve(triple) if resolve else triple)] for triple in triples_of(text)[0]
        ]
    table = pd.DataFrame(rows, columns=list(FACT_COLUMNS)).astype("str").drop_duplicates()
    order = (
        pd.Index(corpus["document_id"].unique())
        .get_indexer(table["document_id"])
        .argsort(kind="stable")
    )
    return table.iloc[order].reset_index(drop=True)


def superset_of_triples(corpus: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return ``query_id, document_id``: the documents that state all triples of one of the query's own documents.

    The triples are those of ``metadata.triples`` alone.
    """
    graph = empty(*_HEADER)
    facts = stated_facts(corpus, graph)
    if facts.empty or qrels.empty:
        return empty("query_id", "document_id")
    ids = pd.Index(corpus["document_id"])
    labels = (
        qrels.assign(row=ids.get_indexer(qrels["document_id"])).groupby("query_id")["row"].agg(list)
    )
    positives = padded_array(pa.chunked_array([labels.tolist()], pa.list_(pa.int32())), PADDING)
    knowledge = KnowledgeGraph.from_tables(empty(*ENTITY_COLUMNS), graph, facts, ids)
    stating = knowledge.entailing(positives)
    pairs = {
        "query_id": np.repeat(labels.index.to_numpy(object), np.diff(stating.indptr)),
        "document_id": ids.to_numpy(object)[stating.indices],
    }
    equal = pd.DataFrame(pairs, dtype="str")
    return equal[~pairs_among(equal, qrels)].reset_index(drop=True)


_FILES: Final = ("entities.jsonl", "triples.tsv")
_RDF: Final = (("graph.ttl",), ("graph.nt",))
# Without a base, relative names in RDF would begin with the folder of the file, and differ between
# machines.
_BASE: Final = "http://no-base.invalid/"
# Texts about an entity that are no facts.
_ABSTRACT: Final = re.compile(
    r"http://dbpedia\.org/ontology/abstract|https?://schema\.org/description"
)
_MALFORMED: Final = (
    "metadata.triples is no list of [head, relation, tail]; what is none was left out"
)


def read_kg(location: str, options: Options) -> RawCollection:
    """Read a folder in the BEIR layout with its graph.

    The graph is ``entities.jsonl`` with ``triples.tsv``, or else ``graph.ttl`` or ``graph.nt``, in
    the folder or in the one above. A document's facts are its ``metadata.triples``, names written
    short or as URIs, and the triples whose head is its id.

    Parameters
    ----------
    location
        The folder.
    options
        Of interest are ``language`` (of labels) and ``max_quarantine`` (of damaged triples, too).

    Raises
    ------
    AnmiError
        If a file is missing, not in its form, or too much of the graph is damaged.
    """
    raw = read_beir(location, options)
    files = graph_files(Path(location).expanduser())
    set_aside = table_of()
    if len(files) > 1:
        entities, graph, set_aside = read_tables(files[0], files[1], options.max_quarantine)
    else:
        entities, graph = read_rdf(
            files[0], options.language or detect_language(joined_texts(raw.documents))
        )
    bad = raw.documents[[not triples_of(text)[1] for text in raw.documents["metadata"]]]
    malformed = table_of(
        ("fact", *row, _MALFORMED)
        for row in bad[["document_id", "file", "line"]].to_numpy().tolist()
    )
    check_share(malformed, "documents", len(raw.documents), options.max_quarantine)

    entities = with_ranges(entities, graph)
    triples = set(zip(*(graph[name] for name in _HEADER), strict=True))
    # Relations are seldom URIs; those that are none have a name and no short one.
    relations = graph["relation"][graph["relation"].str.contains("://", regex=False)]
    facts = stated_facts(raw.documents, graph, resolver({*entities["uri"], *relations}, triples))
    notes: dict[str, Any] = {"graph": [str(path) for path in files]}
    if foreign := sum(
        fact not in triples for fact in zip(*(facts[name] for name in _HEADER), strict=True)
    ):
        notes["stated triples that the graph lacks"] = foreign
    return replace(
        raw,
        graph=graph,
        notes=notes,
        entities=entities,
        facts=facts,
        set_aside=pd.concat([set_aside, malformed], ignore_index=True),
    )


def graph_files(folder: Path) -> list[Path]:
    """Return the files of the graph of a folder: ``entities.jsonl`` and ``triples.tsv``, or one file of RDF."""
    places = (folder, folder.absolute().parent)
    for names, place in product((_FILES, *_RDF), places):
        if all((place / name).is_file() for name in names):
            return [inside(place / name, place) for name in names]
    lacking = [
        name for name in _FILES if not any((place / name).is_file() for place in places)
    ] or _FILES
    raise AnmiError(
        f"neither {folder} nor {places[1]} has {' and '.join(lacking)}; put"
        f" {'it' if len(lacking) == 1 else 'them'} there, or the graph as graph.ttl or graph.nt"
    )


def read_tables(
    entities: Path, triples: Path, max_quarantine: float
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Read a graph from two files.

    Parameters
    ----------
    entities
        Lines with ``uri`` and maybe ``label`` and ``types`` (a list); other keys are ignored.
    triples
        ``head, relation, tail`` and maybe ``split``, separated by tabs, below a header. A tail in
        quotation marks, or one that is no entity, is a literal.
    max_quarantine
        The share of damaged triples that is allowed.

    Returns
    -------
    entities, triples, set_aside
        ``uri, label, types``, types as a JSON list of different names; ``head, relation, tail``,
        each once, every head an entity; and ``kind, id, file, line, reason`` of the lines that are
        no such triple.

    Raises
    ------
    AnmiError
        If a file is missing or not in this form, an entity occurs twice, or too many triples are
        damaged.
    """
    table_of_entities = read_entities(entities)
    lines = (
        (number, [clean(value).strip() for value in line.split("\t")])
        for number, line in read_lines(triples)
    )
    first, header = next(lines)
    if header not in (_HEADER, [*_HEADER, "split"]):
        raise AnmiError(
            f"{triples} line {first} is not the header; put head<TAB>relation<TAB>tail, and maybe"
            " <TAB>split, in the first line"
        )
    uris = set(table_of_entities["uri"])
    sound = list[list[str]]()
    bad = []
    for number, fields in lines:
        if len(fields) not in (3, 4):
            reason = (
                f"{len(fields)} columns where head, relation, tail and maybe split were expected"
            )
        elif not all(fields[:3]):
            reason = "the head, the relation or the tail is empty"
        elif fields[0] not in uris:
            reason = f"the head is {'a literal' if is_quoted(fields[0]) else 'no entity'}"
        else:
            sound.append(fields[:3])
            continue
        bad.append(("triple", fields[0], str(triples), number, reason))
    if not sound and not bad:
        raise AnmiError(f"{triples} has a header and no rows; at least one triple was expected")
    check_share(table_of(bad), "triples", len(sound) + len(bad), max_quarantine)
    table = pd.DataFrame(sound, columns=_HEADER, dtype="str").drop_duplicates(ignore_index=True)
    return table_of_entities, table, table_of(bad)


def read_entities(path: Path) -> pd.DataFrame:
    """Read ``uri, label, types`` from a file of JSON lines, types as a JSON list.

    Raises
    ------
    AnmiError
        If a line has no ``uri`` or one that an earlier line has.
    """
    lines: dict[str, int] = {}
    rows: list[tuple[str, str, str]] = []
    for number, value in read_objects(path):
        uri, label, types = (value.get(key) for key in ENTITY_COLUMNS)
        if not isinstance(uri, str) or not uri.strip():
            raise AnmiError(
                f'{path} line {number} has no "uri" that is a text; every entity needs one'
            )
        uri = clean(uri).strip()
        if uri in lines:
            raise AnmiError(
                f'{path} line {number} repeats the entity "{uri}" of line {lines[uri]}; keep one of'
                " these lines"
            )
        lines[uri] = number
        # One type is often written without its brackets.
        listed = types if isinstance(types, list) else [types]
        names = dict.fromkeys(
            clean(name).strip() for name in listed if isinstance(name, str) and name.strip()
        )
        label = clean(label).strip() if isinstance(label, str) else ""
        rows.append((uri, label or last_segment(uri), to_json(list(names))))
    return pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")


def last_segment(uri: str) -> str:
    """Return what a URI ends in, with blanks for underscores: its label where it has none of its own.

    Examples
    --------
    >>> last_segment("http://dbpedia.org/resource/Aarhus_Airport"), last_segment("http://example.org/city#Aarhus")
    ('Aarhus Airport', 'Aarhus')
    """
    path = uri.rstrip("/#")
    return path[max(path.rfind("/"), path.rfind("#")) + 1 :].replace("_", " ").strip() or uri


def is_quoted(text: str) -> bool:
    """Return whether a text stands in quotation marks, as a literal does."""
    return len(text) > 1 and text[0] == text[-1] == '"'


def with_ranges(entities: pd.DataFrame, graph: pd.DataFrame) -> pd.DataFrame:
    """Give entities without a type the ranges of the relations that they are the tail of.

    Examples
    --------
    >>> entities = pd.DataFrame({"uri": ["u:a", "u:b", "u:c"], "types": ['["city"]', "[]", "[]"]})
    >>> graph = pd.DataFrame({"head": ["u:a"], "relation": ["country"], "tail": ["u:b"]})
    >>> with_ranges(entities, graph).types.tolist()
    ['["city"]', '["range:country"]', '[]']
    """
    bare = entities["types"] == "[]"
    tails = graph[graph["tail"].isin(entities.loc[bare, "uri"])].drop_duplicates(
        ["relation", "tail"]
    )
    ranges = (
        ("range:" + tails["relation"])
        .groupby(tails["tail"], sort=False)
        .agg(lambda names: to_json(list(names)))
    )
    types = entities["types"].mask(bare, entities["uri"].map(ranges).fillna("[]"))
    return entities.assign(types=types.astype("str"))


def resolver(uris: Iterable[str], known: Collection[Triple]) -> Callable[[Triple], Triple]:
    """Return what writes a document's triple as the graph writes it.

    A name stands for a URI that it is, or that ends in it after a slash. Where the graph has no
    such triple, names become URIs if these are clear: of ``http://x.org/AIDS`` and
    ``http://x.org/HIV/AIDS`` the first is meant by ``AIDS``, since the second has a longer name
    there, but ``Paris`` of two unrelated places stays ``Paris``. A tail in quotation marks is a
    literal, and never an entity of that name.

    Parameters
    ----------
    uris
        Of entities and relations.
    known
        The triples of the graph, which decide what an ambiguous name means.

    Examples
    --------
    >>> known = {("http://x.org/Aarhus", "country", "http://x.org/Denmark"), ("http://x.org/Aarhus", "size", '"91"')}
    >>> resolve = resolver(["http://x.org/Aarhus", "http://x.org/Denmark"], known)
    >>> resolve(("Aarhus", "country", "Denmark"))
    ('http://x.org/Aarhus', 'country', 'http://x.org/Denmark')
    >>> resolve(("Aarhus", "size", "91")), resolve(("Aarhus", "country", '"Denmark"'))
    (('http://x.org/Aarhus', 'size', '"91"'), ('http://x.org/Aarhus', 'country', '"Denmark"'))
    """
    named = defaultdict[str, list[str]](list)
    for uri in sorted(set(uris), key=lambda uri: (len(uri), uri)):
        start = uri.find("://") + 3 if "://" in uri else 0
        for name in {
            uri,
            *(uri[place + 1 :] for place in range(start, len(uri) - 1) if uri[place] in "/#"),
        }:
            named[name].append(uri)

    def meant(name: str) -> str:
        candidates = named.get(name, [name])
        return (
            candidates[0]
            if all(
                uri_of_name.startswith(candidates[0].removesuffix(name))
                for uri_of_name in candidates
            )
            else name
        )

    @cache  # The same triple stands in many documents.
    def resolve(triple: Triple) -> Triple:
        head, relation, tail = triple
        literal = is_quoted(tail)
        tails = (tail, tail[1:-1]) if literal else (tail, *named.get(tail, ()), f'"{tail}"')
        for written in product(
            named.get(head, [head]), (relation, *named.get(relation, ())), tails
        ):
            if written in known:
                return written
        return meant(head), meant(relation), tail if literal else meant(tail)

    return resolve


def read_rdf(path: Path, language: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read a graph in Turtle (``*.ttl``) or N-Triples (``*.nt``).

    ``rdfs:label`` and ``rdf:type`` belong to the entity, every other triple to the graph, but for
    abstracts and those in the terms of RDF, RDFS and OWL. An entity of a class is one of the
    classes above it, too. A text becomes a tail in quotation marks; numbers, dates and the like
    stay as they are written.

    Parameters
    ----------
    path
        The file.
    language
        ISO 639-1 code of the labels that are preferred; then come English ones, those of no
        language, and the rest.

    Returns
    -------
    entities, triples
        See :func:`read_tables`. Entities are all heads and tails of the graph, and what else has a
        label or type and is no class; in the order of the file.

    Raises
    ------
    AnmiError
        If rdflib is not installed or the file is not Turtle.
    """
    installed("rdflib", str(path), "rdf")
    from rdflib import OWL, RDF, RDFS, XSD, BNode, Literal

    graph = _parsed(path)
    order = (language, "en", "")
    texts = (None, XSD.string, RDF.langString)
    above = RDFS.subClassOf

    def of_schema(node: Any) -> bool:
        return str(node).startswith((str(RDF), str(RDFS), str(OWL)))

    def label_of(node: Any) -> str:
        texts = [text for text in graph.objects(node, RDFS.label) if isinstance(text, Literal)]
        tagged = [((text.language or "").lower().partition("-")[0], str(text)) for text in texts]
        ranked = (
            (order.index(tag) if tag in order else len(order), tag, text) for tag, text in tagged
        )
        text = min(ranked, default=(0, "", ""))[2]
        return clean(text).strip() or last_segment(clean(str(node)))

    classes = {*graph.subjects(above), *graph.objects(None, above), *graph.objects(None, RDF.type)}
    # Everything is one of these, so they make no class; the other kinds of OWL are those of
    # classes.
    instances = (OWL.Thing, OWL.NamedIndividual, RDFS.Resource)
    schema = {kind for kind in graph.objects(None, RDF.type) if of_schema(kind)} - {*instances}
    classes |= {node for kind in schema for node in graph.subjects(RDF.type, kind)}
    nodes: dict[Any, bool] = {}
    facts = dict[Triple, None]()
    for triple in graph:
        head, relation, tail = triple
        text = isinstance(tail, Literal)
        if any(isinstance(node, BNode) for node in triple):
            continue
        if relation in ([RDFS.label] if text else [RDF.type, above]):
            nodes.setdefault(head, head not in classes)
        elif not of_schema(relation) and not _ABSTRACT.fullmatch(str(relation)):
            nodes |= {head: True} if text else {head: True, tail: True}
            written = f'"{tail}"' if text and tail.datatype in texts else str(tail)
            facts[clean(str(head)), clean(str(relation)), clean(written)] = None
    if not nodes:
        raise AnmiError(
            f"{path} holds no triple that names its head and its tail; at least one was expected"
        )
    rows = []
    for node in (node for node, is_entity in nodes.items() if is_entity):
        kinds = (
            kind
            for class_ in graph.objects(node, RDF.type)
            for kind in graph.transitive_objects(class_, above)
        )
        types = dict.fromkeys(clean(str(kind)) for kind in kinds if not of_schema(kind))
        rows.append((clean(str(node)), label_of(node), to_json(list(types))))
    entities = pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")
    return entities, pd.DataFrame(list(facts), columns=_HEADER, dtype="str")


def _parsed(path: Path) -> Any:
    import rdflib

    text = "".join(f"{line}\n" for _, line in read_lines(path, blank=True))
    graph = rdflib.Graph("SimpleMemory")  # Which keeps the order.
    # It would rewrite 01.50 to 1.5, and warn of every URI and date that is not in order.
    rdflib.NORMALIZE_LITERALS = False
    logging.getLogger("rdflib").setLevel(logging.ERROR)
    try:
        return graph.parse(data=text, format="turtle", publicID=_BASE)
    except (SyntaxError, ValueError, RecursionError) as error:
        # rdflib counts some lines twice, but knows at which character it stopped.
        line = f" line {text.count(chr(10), 0, error._i) + 1}" if hasattr(error, "_i") else ""
        reason = " ".join(str(getattr(error, "_why", error)).split())[:200]
        raise AnmiError(
            f"{path}{line} is not valid Turtle ({reason}); correct the statement that ends or"
            " begins there"
        ) from None
