"""Evidence of relevance: many small, differently biased measurements of (query, document) pairs.

``gather`` adds them as columns, for the candidates and for the known positives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from anmi.candidates import PADDING, Candidates
from anmi.ragged import Float32s, Int32s
from anmi.retrieval.exact import similarities
from anmi.retrieval.terms import Terms

# Share of the query's terms that the document holds, by idf, and the same by BM25's saturated
# frequency.
_BY_TERMS: Final = ("coverage", "match")
# Cosine with the nearest known positive by vectors and by tf-idf terms, the share of a known
# positive's terms that the document holds, of the document's terms that a known positive holds, and
# of a known positive's facts that it states.
_BY_POSITIVES: Final = ("likeness", "likeness_terms", "containment", "contained", "facts")
# Cosine of query and document by a packaged network that is not trained.
NETWORK: Final = "network"
KINDS: Final = (*_BY_TERMS, *_BY_POSITIVES, NETWORK)
Values = dict[str, Float32s]


class ByNetwork(NamedTuple):
    """Unit vectors by a packaged network, untrained: of the documents, float32 [N, E], and by query id, [E]."""

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
    Values are NaN in padding and where there is nothing to say: for a query without a known term, or
    without a positive other than the document itself.
    """
    columns, own = (
        _by_terms(block, documents, material)
        | _by_positives(block, documents, material)
        | _by_network(block, documents, material.network)
        for documents in (block.documents, block.positives)
    )
    return block.with_columns(columns, own)


def _by_terms(block: Candidates, documents: Int32s, material: Material) -> Values:
    terms = material.terms
    texts = material.query_texts
    queries = terms.queries([texts[query] for query in block.query_ids.tolist()])
    saturated, held = terms.products(documents, queries, terms.saturated, queries)
    whole = (queries @ np.ones(queries.shape[1], np.float32))[:, None]
    return {
        "coverage": _share(held, whole, documents),
        "match": _share(saturated, whole, documents),
    }


def _by_network(block: Candidates, documents: Int32s, network: ByNetwork | None) -> Values:
    if network is None:
        return {}
    vectors = [network.queries[query] for query in block.query_ids.tolist()]
    queries = np.reshape(np.array(vectors, np.float32), (len(block), network.documents.shape[1]))
    return {NETWORK: similarities(queries, network.documents, documents)}


def _by_positives(block: Candidates, documents: Int32s, material: Material) -> Values:
    """Measure documents [Q, M] beside each known positive and take the largest value."""
    terms = material.terms
    facts = material.facts
    some = (terms.lengths > 0).astype(np.float32)
    mass = terms.mass
    kinds = _BY_POSITIVES[: None if facts is not None else -1]
    best = {name: np.full(documents.shape, np.nan, np.float32) for name in kinds}
    for positives in block.positives.T[: material.references]:
        rows = np.nonzero(positives != PADDING)[0]
        own = positives[rows]
        others = documents[rows]
        cosine, overlap = terms.products(others, terms.unit[own], terms.unit, terms.weighted(own))
        there = np.maximum(others, 0)
        values = {
            "likeness": similarities(material.vectors[own], material.vectors, others),
            "likeness_terms": _share(
                np.minimum(cosine, 1), some[own][:, None] * some[there], others
            ),
            "containment": _share(overlap, mass[own][:, None], others),
            "contained": _share(overlap, mass[there], others),
        }
        if facts is not None:
            held = facts[own]
            (row, slot) = np.nonzero(others != PADDING)
            shared = np.zeros(others.shape, np.float32)
            shared[row, slot] = np.asarray(
                held[row].multiply(facts[others[row, slot]]).sum(axis=1)
            ).ravel()
            values["facts"] = _share(shared, np.asarray(held.sum(axis=1)), others)
        for name, found in values.items():
            # A positive is not compared with itself.
            best[name][rows] = np.fmax(
                best[name][rows], np.where(others == own[:, None], np.float32(np.nan), found)
            )
    return best


def _share(part: Float32s, whole: Float32s, documents: Int32s) -> Float32s:
    """Return part [Q, M] / whole [Q, 1] or [Q, M]; NaN in padding and where there is no whole."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((documents == PADDING) | (whole <= 0), np.nan, part / whole).astype(
            np.float32
        )


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
    places = {document: row for row, document in enumerate(corpus.document_id)}
    stated = zip(*(graph.get(name, []) for name in ("head", "relation", "tail")), strict=True)
    pairs = {
        (places[head], f"{relation}\x1f{tail}"): None
        for head, relation, tail in stated
        if head in places
    }
    for row, text in enumerate(corpus.metadata):
        triples = json.loads(text).get("triples") if '"triples"' in text else None
        pairs |= {
            (row, json.dumps(triple)): None
            for triple in (triples if isinstance(triples, list) else [])
        }
    if not pairs:
        return None
    rows, facts = zip(*pairs, strict=True)
    columns, names = pd.factorize(np.array(facts, dtype=object))
    return sparse.csr_matrix(
        (np.ones(len(rows), np.float32), (rows, columns)), (len(corpus), len(names))
    )
