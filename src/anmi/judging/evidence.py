"""Evidence of relevance: many small, differently biased measurements of (query, document) pairs.

``gather`` adds them as columns, for the candidates and for the known positives. The judge is fitted
on three other views of the queries, for which evidence is gathered here, too: ``gather_hidden``,
``gather_known`` and ``gather_nearest``.

A hidden positive plays the false negative: for a query with several positives one of them is put
among its candidates, as if nobody had labelled it, and the others stay known. That gives relevant
documents to learn and to calibrate on without any false-negative label, measured as candidates are:
one document beside all that is known of the query.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi import seeds
from anmi.candidates import PADDING, Candidates
from anmi.ragged import Bools, Float32s, Int32s, Int64s
from anmi.retrieval.exact import similarities
from anmi.retrieval.terms import Terms

# Share of the query's terms that the document holds, by idf, and the same by BM25's saturated
# frequency.
_BY_TERMS: Final = ("coverage", "match")
# likeness, likeness_terms: cosine with the nearest known positive, by vectors and by tf-idf terms.
# containment: the share of a known positive's terms that the document holds.
# contained: the share of the document's terms that a known positive holds.
# facts: the share of a known positive's facts that the document states.
_BY_POSITIVES: Final = ("likeness", "likeness_terms", "containment", "contained", "facts")
# Cosine of query and document by a packaged network that is not trained.
NETWORK: Final = "network"
KINDS: Final = (*_BY_TERMS, *_BY_POSITIVES, NETWORK)
Values = dict[str, Float32s]


class ByNetwork(NamedTuple):
    """Unit vectors by an untrained network: of documents, float32 [N, E], and by query id [E]."""

    documents: Float32s
    queries: dict[str, Float32s]


@dataclass(frozen=True)
class Material:
    """What is measured on.

    Attributes
    ----------
    terms
        Of the documents.
    query_texts
        By query id.
    vectors
        Unit vectors of the documents, float32 [N, D].
    facts
        Which document states which fact, sparse [N, F]; None where the collection has no graph.
    references
        Known positives a document is compared with, at most; the first ones of each query.
    network
        What a packaged network says; None where the run has none.
    """

    terms: Terms
    query_texts: dict[str, str]
    vectors: Float32s
    facts: sparse.csr_matrix | None = None
    references: int = 8
    network: ByNetwork | None = None


def gather(block: Candidates, material: Material) -> Candidates:
    """Return the block with a column of each of :data:`KINDS` for candidates and for positives.

    ``facts`` is there only for a collection with a graph, ``network`` where the material has one.
    Values are NaN in padding and where there is nothing to say: for a query without a known term,
    or without a positive other than the document itself.
    """
    columns, positive_columns = (
        _by_terms(block, documents, material)
        | _by_positives(block, documents, material)
        | _by_network(block, documents, material.network)
        for documents in (block.documents, block.positives)
    )
    return block.with_columns(columns, positive_columns)


def _by_terms(block: Candidates, documents: Int32s, material: Material) -> Values:
    terms = material.terms
    texts = [material.query_texts[query_id] for query_id in block.query_ids.tolist()]
    queries = terms.queries(texts)
    match, coverage = terms.products(documents, queries, terms.saturated, queries)
    query_mass = (queries @ np.ones(queries.shape[1], np.float32))[:, None]
    return {
        "coverage": _share(coverage, query_mass, documents),
        "match": _share(match, query_mass, documents),
    }


def _by_network(block: Candidates, documents: Int32s, network: ByNetwork | None) -> Values:
    if network is None:
        return {}
    vectors = [network.queries[query_id] for query_id in block.query_ids.tolist()]
    queries = np.reshape(np.array(vectors, np.float32), (len(block), network.documents.shape[1]))
    return {NETWORK: similarities(queries, network.documents, documents)}


def _by_positives(block: Candidates, documents: Int32s, material: Material) -> Values:
    """Measure documents [Q, M] beside each known positive and take the largest value."""
    terms = material.terms
    facts = material.facts
    has_terms = (terms.lengths > 0).astype(np.float32)
    kinds = _BY_POSITIVES if facts is not None else _BY_POSITIVES[:-1]
    largest = {kind: np.full(documents.shape, np.nan, np.float32) for kind in kinds}
    for positives in block.positives.T[: material.references]:
        rows = np.nonzero(positives != PADDING)[0]
        positive = positives[rows]
        compared = documents[rows]
        cosine, overlap = terms.products(
            compared,
            terms.unit[positive],
            terms.unit,
            terms.weighted(positive),
        )
        index = np.maximum(compared, 0)
        both_have_terms = has_terms[positive][:, None] * has_terms[index]
        values = {
            "likeness": similarities(material.vectors[positive], material.vectors, compared),
            "likeness_terms": _share(np.minimum(cosine, 1), both_have_terms, compared),
            "containment": _share(overlap, terms.mass[positive][:, None], compared),
            "contained": _share(overlap, terms.mass[index], compared),
        }
        if facts is not None:
            values["facts"] = _shared_facts(facts, positive, compared)
        is_itself = compared == positive[:, None]
        for kind, measured in values.items():
            others = np.where(is_itself, np.float32(np.nan), measured)
            largest[kind][rows] = np.fmax(largest[kind][rows], others)
    return largest


def _shared_facts(facts: sparse.csr_matrix, positives: Int32s, documents: Int32s) -> Float32s:
    """Return the share of the facts of positives [R] that documents [R, M] state."""
    of_positives = facts[positives]
    rows, slots = np.nonzero(documents != PADDING)
    products = of_positives[rows].multiply(facts[documents[rows, slots]])
    shared = np.zeros(documents.shape, np.float32)
    shared[rows, slots] = np.asarray(products.sum(axis=1)).ravel()
    return _share(shared, np.asarray(of_positives.sum(axis=1)), documents)


def _share(part: Float32s, whole: Float32s, documents: Int32s) -> Float32s:
    """Return part [Q, M] / whole [Q, 1] or [Q, M]; NaN in padding and where there is no whole."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = part / whole
    return np.where((documents == PADDING) | (whole <= 0), np.nan, share).astype(np.float32)


def gather_hidden(
    block: Candidates,
    material: Material,
    depth: int,
    max_hidden: int,
    seed: int,
) -> Candidates:
    """Gather evidence of the hidden positives of :func:`hide` that retrieval would have found."""
    hidden, _, _ = hide(block, depth, max_hidden, seed)
    return gather(hidden.take(would_be_retrieved(hidden.columns["dense"])), material)


def gather_known(block: Candidates, material: Material, depth: int) -> Candidates:
    """Gather evidence of each known positive, a row each, before its ``depth`` nearest candidates.

    Positives that retrieval would not have found are left out. No positive stays known beside them.
    """
    rows, slots = np.nonzero(block.positives != PADDING)
    no_slots = np.zeros((len(rows), 0), np.int64)
    positives = _in_front(block, rows, slots, no_slots, depth)
    return gather(positives.take(would_be_retrieved(positives.columns["dense"])), material)


def gather_nearest(block: Candidates, material: Material, depth: int) -> Candidates:
    """Gather evidence of only the ``depth`` candidates most similar to each query."""
    slots = _nearest(block, depth)
    nearest = Candidates(
        query_ids=block.query_ids,
        positives=block.positives,
        documents=np.take_along_axis(block.documents, slots, axis=1),
        source=np.zeros(slots.shape, np.uint8),
        columns={"dense": np.take_along_axis(block.columns["dense"], slots, axis=1)},
        positive_columns={"dense": block.positive_columns["dense"]},
    )
    return gather(nearest, material)


def hide(
    block: Candidates,
    depth: int,
    max_hidden: int | None = None,
    seed: int = 0,
) -> tuple[Candidates, Int64s, Int64s]:
    """Return a block in which positives of queries with several are hidden, one in each row.

    Parameters
    ----------
    block
        One row per query, with ``dense`` for candidates and positives.
    depth
        Candidates kept per row, the most similar ones.
    max_hidden
        Positives hidden per query, at most, drawn by the query's own stream; None hides each of
        them.
    seed
        Of the run.

    Returns
    -------
    hidden
        One row per hidden positive, which comes first among the candidates; the query's other
        positives are known.
    rows, slots
        Where in ``block.positives`` the hidden one stands, int64 [R] each.

    Examples
    --------
    >>> positives, documents = np.array([[3, 5]], np.int32), np.array([[1, 2]], np.int32)
    >>> block = Candidates(np.array(["q"]), positives, documents, np.zeros((1, 2), np.uint8))
    >>> dense, of_positives = np.array([[0.1, 0.2]]), np.array([[0.3, 0.4]])
    >>> block = block.with_columns({"dense": dense}, {"dense": of_positives})
    >>> hidden, rows, slots = hide(block, depth=1)
    >>> hidden.positives.tolist(), hidden.documents.tolist(), slots.tolist()
    ([[5], [3]], [[3, 2], [5, 2]], [0, 1])
    """
    is_known = block.positives != PADDING
    is_hidden = is_known & (is_known.sum(axis=1, keepdims=True) > 1)
    if max_hidden is not None:
        draws = seeds.uniform(seed, "judging/hidden", block.query_ids.tolist(), block.positives)
        order = np.argsort(np.where(is_known, draws, 2.0), axis=1, kind="stable")
        is_hidden &= np.argsort(order, axis=1) < max_hidden
    rows, slots = np.nonzero(is_hidden)
    # All slots but the hidden one: from there on, the next one.
    other_slots = np.arange(max(is_known.shape[1] - 1, 0))
    other_slots = other_slots + (other_slots >= slots[:, None])
    return _in_front(block, rows, slots, other_slots, depth), rows, slots


def _in_front(
    block: Candidates,
    rows: Int64s,
    slots: Int64s,
    known_slots: Int64s,
    depth: int,
) -> Candidates:
    """Put positives [R] before their rows' nearest candidates.

    The positives at ``known_slots`` [R, P'] stay known.
    """
    nearest = _nearest(block, depth)

    def joined(of_positives: NDArray[Any], of_candidates: NDArray[Any]) -> NDArray[Any]:
        candidates = np.take_along_axis(of_candidates, nearest, axis=1)[rows]
        return np.concatenate([of_positives[rows, slots][:, None], candidates], axis=1)

    names = sorted(block.columns.keys() & block.positive_columns.keys())
    documents = joined(block.positives, block.documents)
    return Candidates(
        query_ids=block.query_ids[rows],
        positives=block.positives[rows[:, None], known_slots],
        documents=documents,
        source=np.zeros(documents.shape, np.uint8),
        columns={name: joined(block.positive_columns[name], block.columns[name]) for name in names},
        positive_columns={
            name: block.positive_columns[name][rows[:, None], known_slots] for name in names
        },
    )


def _nearest(block: Candidates, depth: int) -> Int64s:
    """Return the slots of the ``depth`` candidates most similar to each query, [Q, depth]."""
    similarity = np.where(block.filled, np.nan_to_num(block.columns["dense"], nan=-2.0), -np.inf)
    return np.lexsort((block.documents, -similarity), axis=1)[:, :depth]


def would_be_retrieved(similarity: Float32s) -> Bools:
    """Return which hidden positives are as similar as the least similar candidate, bool [R].

    Retrieval would have brought these. It would have missed the others, so no candidate looks like
    them, and the judge need not learn from them.

    Parameters
    ----------
    similarity
        Of the hidden document, and behind it of the row's candidates, [R, 1 + depth]; NaN where
        there is none.
    """
    candidates = np.where(np.isnan(similarity[:, 1:]), np.inf, similarity[:, 1:])
    lowest = candidates.min(axis=1, initial=np.inf)
    return (similarity[:, 0] >= lowest) & np.isfinite(lowest)


def facts_of(corpus: pd.DataFrame, graph: pd.DataFrame) -> sparse.csr_matrix | None:
    """Return which document states which fact, float32 [N, F]; None where there are none.

    A fact is a (relation, tail) of ``graph`` whose head is a document, or a triple in
    ``metadata.triples``.

    Parameters
    ----------
    corpus
        ``document_id, metadata``.
    graph
        ``head, relation, tail``.
    """
    row_of = {document_id: row for row, document_id in enumerate(corpus.document_id)}
    edges = zip(*(graph.get(name, []) for name in ("head", "relation", "tail")), strict=True)
    # A dict keeps the order, and each fact of a document once.
    statements = {
        (row_of[head], f"{relation}\x1f{tail}"): None
        for head, relation, tail in edges
        if head in row_of
    }
    for row, text in enumerate(corpus.metadata):
        triples = json.loads(text).get("triples") if '"triples"' in text else None
        if isinstance(triples, list):
            statements |= {(row, json.dumps(triple)): None for triple in triples}
    if not statements:
        return None
    rows, facts = zip(*statements, strict=True)
    columns, distinct_facts = pd.factorize(np.array(facts, dtype=object))
    ones = np.ones(len(rows), np.float32)
    return sparse.csr_matrix((ones, (rows, columns)), (len(corpus), len(distinct_facts)))
