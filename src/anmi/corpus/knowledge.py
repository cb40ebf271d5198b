"""The module reads a graph of entities from tables or RDF, and holds it and facts as arrays."""

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
                path / f"{name}.parquet",
                index=False,
                compression="zstd",
                write_page_checksum=True,
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
        >>> entities = pd.DataFrame({"uri": ["u:a", "u:b"], "label": ["A", "B"], "types": '["t"]'})
        >>> facts = pd.DataFrame([("d1", "u:a", "r", "u:b")], columns=FACT_COLUMNS)
        >>> graph = KnowledgeGraph.from_tables(entities, facts[_HEADER], facts, ["d1", "d2"])
        >>> graph.triples.tolist(), graph.about.tolist()
        ([[0, 0, 1]], [0, -1])
        """
        facts = facts[facts.document_id.isin(document_ids)]
        all_triples = pd.concat([graph[_HEADER], facts[_HEADER]])
        nodes_in_order = pd.concat([entities.uri, all_triples["head"], all_triples["tail"]])
        codes, nodes = pd.factorize(nodes_in_order)
        relation, relations = pd.factorize(all_triples.relation)
        head, tail = np.split(codes[len(entities) :], 2)
        numbers = np.stack([head, relation, tail], axis=1).astype(np.int64)
        triples, triple_of_row = np.unique(numbers, axis=0, return_inverse=True)
        triple_of_fact = triple_of_row.ravel()[len(graph) :]
        document_of_fact = pd.Index(document_ids).get_indexer(pd.Index(facts.document_id))
        shape = (len(document_ids), len(triples))
        head_of_fact = head[len(graph) :]
        return cls(
            tuple(entities.uri),
            tuple(entities.label),
            tuple(nodes),
            tuple(relations),
            triples,
            types=_types(entities.types.tolist()),
            stated=membership(document_of_fact, triple_of_fact, shape),
            about=_about(
                document_of_fact,
                head_of_fact,
                len(document_ids),
                len(entities),
            ),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """How a text would write each node, N: the label of an entity."""
        unlabelled = self.nodes[len(self.uris) :]
        return *self.labels, *map(surface, unlabelled)

    def entailing(self, positives: Int32s) -> sparse.csr_array:
        """Return which documents state all facts of one of a query's positives.

        Parameters
        ----------
        positives
            Documents, int32 [Q, P], padded with -1; each entails itself, unless it states no fact.

        Returns
        -------
        scipy.sparse.csr_array
            bool [Q, D].
        """
        present = positives != PADDING
        documents, document_of_label = np.unique(positives[present], return_inverse=True)
        fact_counts = self.stated.astype(np.int32)
        needed = fact_counts[documents]
        transposed = sparse.csc_array(fact_counts.T)
        sizes = np.asarray(needed.sum(axis=1)).ravel()
        blocks = [sparse.csr_array((0, fact_counts.shape[0]), dtype=np.int32)]
        for start in range(0, len(documents), _BLOCK):
            shared = sparse.coo_array(needed[start : start + _BLOCK] @ transposed)
            is_all = shared.data == sizes[start + shared.row]
            shared.data = is_all.astype(np.int32)
            shared.eliminate_zeros()
            blocks.append(sparse.csr_array(shared))
        shape = (len(positives), len(documents))
        of_query = membership(np.nonzero(present)[0], document_of_label, shape)
        entailed = of_query.astype(np.int32) @ sparse.csr_array(sparse.vstack(blocks))
        result = sparse.csr_array(entailed.astype(bool))
        result.sort_indices()
        return result


def surface(node: str) -> str:
    """Return how a text would write a literal, or a node without a label.

    Examples
    --------
    >>> surface('"Aarhus, Denmark"@en'), surface("solo_singer"), surface("25.0")
    ('Aarhus, Denmark', 'solo singer', '25.0')
    """
    literal = _LITERAL.fullmatch(node)
    return (literal["value"] if literal else node).replace("_", " ")


def membership(
    rows: Int64s,
    columns: Int64s,
    shape: tuple[int, int],
) -> sparse.csr_array:
    """Return the matrix of pairs, each once, its columns in ascending order; bool."""
    is_member = np.ones(len(rows), bool)
    result = sparse.csr_array((is_member, (rows, columns)), shape)
    result.sum_duplicates()
    result.sort_indices()
    return result


def _types(type_lists: Sequence[str]) -> sparse.csr_array:
    lists = [list(dict.fromkeys(json.loads(text))) for text in type_lists]
    types = pd.Series(lists, dtype=object)
    types_of_entities = types.explode().dropna()
    columns, names = pd.factorize(types_of_entities)
    rows = types_of_entities.index.to_numpy(np.int64)
    return membership(rows, columns, (len(types), len(names)))


def _about(
    rows: Int64s,
    heads: Int64s,
    documents: int,
    entities: int,
) -> Int32s:
    pairs = pd.DataFrame({"row": rows, "head": heads})[heads < entities]
    counts = pairs.groupby(["row", "head"], sort=False).size()
    # Stable, and groups stand in the order of their first fact.
    counts = counts.sort_values(ascending=False, kind="stable")
    commonest = counts.reset_index().drop_duplicates("row")
    about = np.full(documents, -1, np.int32)
    about[commonest["row"]] = commonest["head"]
    return about


def triples_of(metadata: str) -> tuple[list[Triple], bool]:
    """Return the triples of ``metadata.triples``, and whether all that stands there is triples.

    Parameters
    ----------
    metadata
        A JSON object. A triple is a list of three texts or numbers, none of them empty.

    Examples
    --------
    >>> triples_of('{"triples": [["a", "size", 3]]}'), triples_of('{"triples": [["a", "b"]]}')
    (([('a', 'size', '3')], True), ([], False))
    """
    # Most metadata have none, and need not be parsed.
    written = json.loads(metadata).get("triples") if '"triples"' in metadata else None
    if not isinstance(written, list):
        return [], written is None
    sound: list[Triple] = []
    for item in written:
        if isinstance(item, list) and len(item) == 3 and all(map(_is_node, item)):
            head, relation, tail = map(str, item)
            sound.append((head, relation, tail))
    return sound, len(sound) == len(written)


def _is_node(item: Any) -> bool:
    return isinstance(item, str | int | float) and bool(str(item).strip())


def stated_facts(
    corpus: pd.DataFrame,
    graph: pd.DataFrame,
    resolve: Callable[[Triple], Triple] | None = None,
) -> pd.DataFrame:
    """Return the facts of documents: their triples in the graph and in ``metadata.triples``.

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
    >>> metadata = ["{}", '{"triples": [["x", "is", "y"]]}']
    >>> corpus = pd.DataFrame({"document_id": ["a", "b"], "metadata": metadata})
    >>> graph = pd.DataFrame({"head": ["a", "z"], "relation": "kind", "tail": "function"})
    >>> stated_facts(corpus, graph).to_numpy().tolist()
    [['a', 'a', 'kind', 'function'], ['b', 'x', 'is', 'y']]
    """
    of_documents = graph[among(graph["head"], corpus["document_id"])]
    rows = of_documents[["head", *_HEADER]].to_numpy().tolist()
    telling = containing(corpus["metadata"], '"triples"')
    document_ids = taken(corpus["document_id"], telling)
    metadata_texts = taken(corpus["metadata"], telling)
    for document_id, metadata in zip(document_ids, metadata_texts, strict=True):
        triples, _ = triples_of(metadata)
        for triple in map(resolve, triples) if resolve else triples:
            rows.append([document_id, *triple])
    facts = pd.DataFrame(rows, columns=list(FACT_COLUMNS))
    facts = facts.astype("str").drop_duplicates()
    documents = pd.Index(corpus["document_id"].unique())
    order = documents.get_indexer(facts["document_id"]).argsort(kind="stable")
    return facts.iloc[order].reset_index(drop=True)


def superset_of_triples(corpus: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return ``query_id, document_id``: documents that state all triples of one of the query's own.

    The triples are those of ``metadata.triples`` alone.
    """
    graph = empty(*_HEADER)
    facts = stated_facts(corpus, graph)
    if facts.empty or qrels.empty:
        return empty("query_id", "document_id")
    ids = pd.Index(corpus["document_id"])
    rows = pd.Series(ids.get_indexer(qrels["document_id"]))
    labels = rows.groupby(qrels["query_id"].to_numpy()).agg(list)
    lists = pa.chunked_array([labels.tolist()], pa.list_(pa.int32()))
    positives = padded_array(lists, PADDING)
    knowledge = KnowledgeGraph.from_tables(empty(*ENTITY_COLUMNS), graph, facts, ids)
    stating = knowledge.entailing(positives)
    query_ids = labels.index.to_numpy(object)
    pairs = {
        "query_id": np.repeat(query_ids, np.diff(stating.indptr)),
        "document_id": ids.to_numpy(object)[stating.indices],
    }
    equal = pd.DataFrame(pairs, dtype="str")
    return equal[~pairs_among(equal, qrels)].reset_index(drop=True)


_TABLE_FILES: Final = ("entities.jsonl", "triples.tsv")
_GRAPH_FILES: Final = (_TABLE_FILES, ("graph.ttl",), ("graph.nt",))
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
        language = options.language or detect_language(joined_texts(raw.documents))
        entities, graph = read_rdf(files[0], language)
    is_malformed = [not triples_of(text)[1] for text in raw.documents["metadata"]]
    bad_documents = raw.documents.loc[is_malformed, ["document_id", "file", "line"]]
    bad_rows = bad_documents.to_numpy().tolist()
    malformed = table_of(("fact", *row, _MALFORMED) for row in bad_rows)
    check_share(malformed, "documents", len(raw.documents), options.max_quarantine)

    entities = with_ranges(entities, graph)
    triples = set(graph[_HEADER].itertuples(index=False, name=None))
    # Relations are seldom URIs; those that are none have a name and no short one.
    relations = graph["relation"][graph["relation"].str.contains("://", regex=False)]
    resolve = resolver({*entities["uri"], *relations}, triples)
    facts = stated_facts(raw.documents, graph, resolve)
    notes: dict[str, Any] = {"graph": [str(path) for path in files]}
    stated = facts[_HEADER].itertuples(index=False, name=None)
    if foreign := sum(triple not in triples for triple in stated):
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
    """Return the files of a folder's graph: ``entities.jsonl`` and ``triples.tsv``, or RDF."""
    parent = folder.absolute().parent
    for file_names, place in product(_GRAPH_FILES, (folder, parent)):
        if all((place / name).is_file() for name in file_names):
            return [inside(place / name, place) for name in file_names]
    raise AnmiError(
        f"neither {folder} nor {parent} has {' and '.join(_TABLE_FILES)}; put them there, or the"
        " graph as graph.ttl or graph.nt"
    )


def read_tables(
    entities: Path,
    triples: Path,
    max_quarantine: float,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Read a graph from two tables.

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
    entity_table = read_entities(entities)
    lines = (
        (number, [clean(field).strip() for field in line.split("\t")])
        for number, line in read_lines(triples)
    )
    first_number, header = next(lines)
    if header not in (_HEADER, [*_HEADER, "split"]):
        raise AnmiError(
            f"{triples} line {first_number} is not the header; put head<TAB>relation<TAB>tail, and"
            " maybe <TAB>split, in the first line"
        )
    uris = set(entity_table["uri"])
    sound = list[list[str]]()
    bad = []
    for number, fields in lines:
        if reason := _damage(fields, uris):
            bad.append(("triple", fields[0], str(triples), number, reason))
        else:
            sound.append(fields[:3])
    if not sound and not bad:
        raise AnmiError(f"{triples} has a header and no rows; at least one triple was expected")
    check_share(table_of(bad), "triples", len(sound) + len(bad), max_quarantine)
    graph = pd.DataFrame(sound, columns=_HEADER, dtype="str")
    graph = graph.drop_duplicates(ignore_index=True)
    return entity_table, graph, table_of(bad)


def _damage(fields: list[str], uris: Collection[str]) -> str:
    """Say why the fields of a line are no triple of the graph; nothing where they are one."""
    if len(fields) not in (3, 4):
        return f"{len(fields)} columns where head, relation, tail and maybe split were expected"
    if not all(fields[:3]):
        return "the head, the relation or the tail is empty"
    if fields[0] not in uris:
        return f"the head is {'a literal' if is_quoted(fields[0]) else 'no entity'}"
    return ""


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
        texts = (name for name in listed if isinstance(name, str) and name.strip())
        names = dict.fromkeys(clean(name).strip() for name in texts)
        label = clean(label).strip() if isinstance(label, str) else ""
        rows.append((uri, label or last_segment(uri), to_json(list(names))))
    return pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")


def last_segment(uri: str) -> str:
    """Return what a URI ends in, with blanks for underscores: the label of what has none.

    Examples
    --------
    >>> last_segment("http://x.org/Aarhus_Airport"), last_segment("http://x.org/city#Aarhus")
    ('Aarhus Airport', 'Aarhus')
    """
    path = uri.rstrip("/#")
    start = max(path.rfind("/"), path.rfind("#")) + 1
    label = path[start:].replace("_", " ").strip()
    return label or uri


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
    untyped = graph[graph["tail"].isin(entities.loc[bare, "uri"])]
    tails = untyped.drop_duplicates(["relation", "tail"])
    range_names = "range:" + tails["relation"]
    range_lists = range_names.groupby(tails["tail"], sort=False).agg(list)
    ranges = entities["uri"].map(range_lists.map(to_json))
    types = entities["types"].mask(bare, ranges.fillna("[]"))
    return entities.assign(types=types.astype("str"))


def resolver(uris: Iterable[str], triples: Collection[Triple]) -> Callable[[Triple], Triple]:
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
    triples
        Of the graph, which decide what an ambiguous name means.

    Examples
    --------
    >>> resolve = resolver(["x://A/Aarhus", "x://B/Denmark"], {("x://A/Aarhus", "size", '"91"')})
    >>> resolve(("Aarhus", "country", "Denmark"))
    ('x://A/Aarhus', 'country', 'x://B/Denmark')
    >>> resolve(("Aarhus", "size", "91")), resolve(("Aarhus", "country", '"Denmark"'))
    (('x://A/Aarhus', 'size', '"91"'), ('x://A/Aarhus', 'country', '"Denmark"'))
    """
    uris_by_name = defaultdict[str, list[str]](list)
    for uri in sorted(set(uris), key=lambda uri: (len(uri), uri)):
        start = uri.find("://") + 3 if "://" in uri else 0
        uri_names = {uri}
        for i in range(start, len(uri) - 1):
            if uri[i] in "/#":
                uri_names.add(uri[i + 1 :])
        for name in uri_names:
            uris_by_name[name].append(uri)

    def clearest(name: str) -> str:
        candidates = uris_by_name.get(name, [name])
        prefix = candidates[0].removesuffix(name)
        is_clear = all(uri.startswith(prefix) for uri in candidates)
        return candidates[0] if is_clear else name

    @cache  # The same triple stands in many documents.
    def resolve(triple: Triple) -> Triple:
        head, relation, tail = triple
        literal = is_quoted(tail)
        heads = uris_by_name.get(head, [head])
        relations = (relation, *uris_by_name.get(relation, ()))
        tails = (tail, *uris_by_name.get(tail, ()), f'"{tail}"')
        if literal:
            tails = (tail, tail[1:-1])
        for candidate in product(heads, relations, tails):
            if candidate in triples:
                return candidate
        return clearest(head), clearest(relation), tail if literal else clearest(tail)

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
    texts = (None, XSD.string, RDF.langString)
    above = RDFS.subClassOf

    def of_schema(node: Any) -> bool:
        return str(node).startswith((str(RDF), str(RDFS), str(OWL)))

    kinds_stated = set(graph.objects(None, RDF.type))
    classes = {
        *graph.subjects(above),
        *graph.objects(None, above),
        *kinds_stated,
    }
    # Everything is one of these, so they make no class; the other kinds of OWL are those of
    # classes.
    instances = (OWL.Thing, OWL.NamedIndividual, RDFS.Resource)
    for kind in kinds_stated.difference(instances):
        if of_schema(kind):
            classes.update(graph.subjects(RDF.type, kind))
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

    def types_of(node: Any) -> list[str]:
        types: dict[str, None] = {}
        for class_ in graph.objects(node, RDF.type):
            for kind in graph.transitive_objects(class_, above):
                if not of_schema(kind):
                    types[clean(str(kind))] = None
        return list(types)

    rows = []
    for node in (node for node, is_entity in nodes.items() if is_entity):
        uri = clean(str(node))
        rows.append((uri, _label_of(graph, node, language), to_json(types_of(node))))
    entities = pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")
    return entities, pd.DataFrame(list(facts), columns=_HEADER, dtype="str")


def _label_of(graph: Any, node: Any, language: str) -> str:
    """Return the label in the language, in English, in none or any; else what the URI ends in."""
    from rdflib import RDFS, Literal

    order = (language, "en", "")
    ranked = [(len(order) + 1, "", "")]
    for label in graph.objects(node, RDFS.label):
        if isinstance(label, Literal):
            tag = (label.language or "").lower().partition("-")[0]
            rank = order.index(tag) if tag in order else len(order)
            ranked.append((rank, tag, str(label)))
    _, _, text = min(ranked)
    return clean(text).strip() or last_segment(clean(str(node)))


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
        line = ""
        if hasattr(error, "_i"):
            line = f" line {text.count(chr(10), 0, error._i) + 1}"
        message = str(getattr(error, "_why", error))
        reason = " ".join(message.split())[:200]
        raise AnmiError(
            f"{path}{line} is not valid Turtle ({reason}); correct the statement that ends or"
            " begins there"
        ) from None
