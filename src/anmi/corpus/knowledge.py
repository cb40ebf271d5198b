"""The module holds a graph of entities, and what documents state of it, as tables and as arrays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING
from anmi.corpus.texts import among, containing, taken
from anmi.corpus.types import ENTITY_COLUMNS, FACT_COLUMNS, empty
from anmi.ragged import padded_array, read_table

Numbers = NDArray[np.int64]
Triple = tuple[str, str, str]

_BLOCK = 2048
_LITERAL: Final = re.compile(r'"(?P<value>.*)"(?:@[\w-]+|\^\^\S+)?', re.DOTALL)
_TABLES = ("entities", "graph", "facts")


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
    _built: dict[int, KnowledgeGraph] = field(default_factory=dict, repr=False, compare=False)

    def of(self, document_ids: Sequence[str]) -> KnowledgeGraph:
        """Return the graph of the documents of a corpus, in its order; built once."""
        key = hash(tuple(document_ids))
        if key not in self._built:
            self._built[key] = KnowledgeGraph.from_tables(self.entities, self.graph, self.facts, document_ids)
        return self._built[key]

    def save(self, path: Path) -> None:
        """Write the three tables into the folder ``path``."""
        for name in _TABLES:
            table = getattr(self, name)
            table.to_parquet(path / f"{name}.parquet", index=False, compression="zstd", write_page_checksum=True)

    @staticmethod
    def load(path: Path) -> Knowledge:
        """Read what :meth:`save` wrote."""
        entities, graph, facts = (read_table(path / f"{name}.parquet").to_pandas() for name in _TABLES)
        return Knowledge(entities, graph, facts)


@dataclass(frozen=True)
class KnowledgeGraph:
    """What is known about entities, and which document states it.

    A node is an entity or a literal; entities come first, so nodes below ``len(uris)`` are entities.

    Attributes
    ----------
    uris, labels
        Of the E entities.
    nodes, relations
        Names of the N nodes and R relations.
    triples
        Head, relation and tail of the T different triples that the graph or a document states, int64 [T, 3], sorted.
    types
        Which entity has which type, bool [E, K].
    stated
        Which document states which triple, bool [D, T].
    about
        The entity that most facts of a document are about, the first of equals, int32 [D]; -1 where there is none.
    """

    uris: tuple[str, ...]
    labels: tuple[str, ...]
    nodes: tuple[str, ...]
    relations: tuple[str, ...]
    triples: Numbers
    types: sparse.csr_array
    stated: sparse.csr_array
    about: NDArray[np.int32]

    @classmethod
    def from_tables(
        cls, entities: pd.DataFrame, graph: pd.DataFrame, facts: pd.DataFrame, document_ids: Sequence[str]
    ) -> KnowledgeGraph:
        """Read the tables that ingestion makes.

        Parameters
        ----------
        entities
            ``uri, label, types``, types as a JSON list. A head that is not among them is a node without a label.
        graph
            ``head, relation, tail``.
        facts
            ``document_id, head, relation, tail``; a document that is not among ``document_ids`` is passed over.
        document_ids
            Of the D documents, in the order of the corpus.

        Examples
        --------
        >>> entities = pd.DataFrame({"uri": ["u:a", "u:b"], "label": ["A", "B"], "types": ['["t"]', '["t"]']})
        >>> facts = pd.DataFrame([("d1", "u:a", "r", "u:b")], columns=["document_id", "head", "relation", "tail"])
        >>> graph = KnowledgeGraph.from_tables(entities, facts[["head", "relation", "tail"]], facts, ["d1", "d2"])
        >>> graph.triples.tolist(), graph.about.tolist()
        ([[0, 0, 1]], [0, -1])
        """
        facts = facts[facts.document_id.isin(document_ids)]
        both = pd.concat([table[["head", "relation", "tail"]] for table in (graph, facts)], ignore_index=True)
        codes, nodes = pd.factorize(pd.concat([entities.uri, both["head"], both["tail"]]))
        relation, relations = pd.factorize(both.relation)
        head, tail = np.split(codes[len(entities) :], 2)
        numbers = np.stack([head, relation, tail], axis=1).astype(np.int64)
        triples, place = np.unique(numbers, axis=0, return_inverse=True)
        row = pd.Index(document_ids).get_indexer(pd.Index(facts.document_id))
        return cls(
            tuple(entities.uri), tuple(entities.label), tuple(nodes), tuple(relations), triples,
            types=_types(entities.types.tolist()),
            stated=membership(row, place.ravel()[len(graph) :], (len(document_ids), len(triples))),
            about=_about(row, numbers[len(graph) :, 0], len(document_ids), len(entities)),
        )  # fmt: skip

    @cached_property
    def names(self) -> tuple[str, ...]:
        """How a text would write each node, N: the label of an entity."""
        return *self.labels, *map(surface, self.nodes[len(self.uris) :])

    def entailing(self, positives: NDArray[np.int32]) -> sparse.csr_array:
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
        own, place = np.unique(positives[present], return_inverse=True)
        counted = self.stated.astype(np.int32)
        needed, transposed = counted[own], sparse.csc_array(counted.T)
        size = np.asarray(needed.sum(axis=1)).ravel()
        parts = [sparse.csr_array((0, counted.shape[0]), dtype=np.int32)]
        for start in range(0, len(own), _BLOCK):
            shared = sparse.coo_array(needed[start : start + _BLOCK] @ transposed)
            complete = shared.data == size[start + shared.row]
            found = np.ones(int(complete.sum()), np.int32), (shared.row[complete], shared.col[complete])
            parts.append(sparse.csr_array(found, shared.shape))
        of_query = membership(np.nonzero(present)[0], place, (len(positives), len(own)))
        result = sparse.csr_array(of_query.astype(np.int32) @ sparse.csr_array(sparse.vstack(parts)))
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


def membership(rows: Numbers, columns: Numbers, shape: tuple[int, int]) -> sparse.csr_array:
    """Return the matrix of pairs, each once, its columns in ascending order; bool."""
    result = sparse.csr_array((np.ones(len(rows), bool), (rows, columns)), shape)
    result.sum_duplicates()
    result.sort_indices()
    return result


def _types(lists: Sequence[str]) -> sparse.csr_array:
    pairs = [(row, name) for row, text in enumerate(lists) for name in dict.fromkeys(json.loads(text))]
    columns, names = pd.factorize(pd.Series([name for _, name in pairs], dtype=object))
    return membership(np.array([row for row, _ in pairs], np.int64), columns, (len(lists), len(names)))


def _about(row: Numbers, head: Numbers, documents: int, entities: int) -> NDArray[np.int32]:
    counts = (
        pd.DataFrame({"row": row, "head": head})[head < entities]
        .groupby(["row", "head"], sort=False)
        .size()
        .reset_index(name="count")
    )
    # Stable, and groups stand in the order of their first fact.
    first = counts.sort_values("count", ascending=False, kind="stable").drop_duplicates("row")
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
        if isinstance(item, list) and len(item) == 3
        and all(isinstance(part, str | int | float) and str(part).strip() for part in item)
    ]  # fmt: skip
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
    own = graph[among(graph["head"], corpus["document_id"])]
    rows = list(zip(*(own[name].tolist() for name in ("head", "head", "relation", "tail")), strict=True))
    telling = containing(corpus["metadata"], '"triples"')
    for document, text in zip(*(taken(corpus[name], telling) for name in ("document_id", "metadata")), strict=True):
        rows += [(document, *(resolve(triple) if resolve else triple)) for triple in triples_of(text)[0]]
    table = pd.DataFrame(rows, columns=list(FACT_COLUMNS)).astype("str").drop_duplicates()
    order = pd.Index(corpus["document_id"]).get_indexer(table["document_id"]).argsort(kind="stable")
    return table.iloc[order].reset_index(drop=True)


def superset_of_triples(corpus: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return ``query_id, document_id``: the documents that state all triples of one of the query's own documents.

    The triples are those of ``metadata.triples`` alone.
    """
    graph = empty("head", "relation", "tail")
    facts = stated_facts(corpus, graph)
    if facts.empty or qrels.empty:
        return empty("query_id", "document_id")
    ids = pd.Index(corpus["document_id"])
    labels = qrels.assign(row=ids.get_indexer(qrels["document_id"])).groupby("query_id")["row"].agg(list)
    positives = padded_array(pa.chunked_array([labels.tolist()], pa.list_(pa.int32())), PADDING)
    known = KnowledgeGraph.from_tables(empty(*ENTITY_COLUMNS), graph, facts, ids)
    found = known.entailing(positives)
    pairs = {
        "query_id": np.repeat(labels.index.to_numpy(object), np.diff(found.indptr)),
        "document_id": ids.to_numpy(object)[found.indices],
    }
    return without_pairs(pd.DataFrame(pairs, dtype="str"), qrels)


def without_pairs(found: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of query and document that are not among the labels."""
    merged = found.merge(qrels[["query_id", "document_id"]], how="left", indicator=True)
    return merged.loc[merged["_merge"] == "left_only", ["query_id", "document_id"]].reset_index(drop=True)
