"""Measurements of pairs: terms that they share, likeness to known positives, and facts that documents state."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING
from anmi.errors import AnmiError
from anmi.judging.evidence.pairs import Beside, Pairs
from anmi.retrieval.exact import similarities


def coverage(pairs: Pairs) -> NDArray[np.float32]:
    """Σ idf of the query's terms that the document holds / Σ idf of the query's terms; in [0, 1].

    Returns
    -------
    numpy.ndarray
        float32 [Q, M]; NaN in padding and for a query without a known term.
    """
    return share(pairs.asked[0], _whole(pairs), pairs.documents)


def match(pairs: Pairs) -> NDArray[np.float32]:
    """Coverage with each term counted by BM25's saturated frequency; in [0, 1), float32 [Q, M]."""
    return share(pairs.asked[1], _whole(pairs), pairs.documents)


def _whole(pairs: Pairs) -> NDArray[np.float32]:
    """Σ idf of each query's terms, [Q]."""
    whole: NDArray[np.float32] = pairs.queries @ np.ones(pairs.queries.shape[1], np.float32)
    return whole


def share(part: NDArray[np.float32], whole: NDArray[np.float32], documents: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return part [Q, M] / whole [Q], [Q, 1] or [Q, M]; NaN in padding and where there is no whole."""
    whole = np.asarray(whole, np.float32)
    whole = whole if whole.ndim == 2 else whole[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.where((documents == PADDING) | (whole <= 0), np.nan, part / whole)
    return result.astype(np.float32)


def likeness(pairs: Pairs) -> NDArray[np.float32]:
    """Cosine with the nearest known positive, float32 [Q, M] in [-1, 1].

    Raises
    ------
    AnmiError
        Without vectors.
    """
    vectors = pairs.material.vectors
    if vectors is None:
        raise AnmiError("the evidence likeness needs document vectors; leave it out or give an encoder")
    return pairs.nearest(lambda beside: similarities(vectors[beside.own], vectors, beside.others))


def likeness_terms(pairs: Pairs) -> NDArray[np.float32]:
    """Tf-idf cosine with the nearest known positive, float32 [Q, M] in [0, 1]."""
    some = (pairs.material.terms.lengths > 0).astype(np.float32)

    def compare(beside: Beside) -> NDArray[np.float32]:
        with_terms = some[beside.own][:, None] * some[np.maximum(beside.others, 0)]
        return share(np.minimum(beside.cosine, 1), with_terms, beside.others)

    return pairs.nearest(compare)


def containment(pairs: Pairs) -> NDArray[np.float32]:
    """Share of a known positive's terms, by idf, that the document holds; float32 [Q, M] in [0, 1].

    A document that holds all of them says at least what the positive says.
    """
    mass = pairs.material.terms.mass
    return pairs.nearest(lambda beside: share(beside.overlap, mass[beside.own], beside.others))


def contained(pairs: Pairs) -> NDArray[np.float32]:
    """Share of the document's terms, by idf, that a known positive holds; float32 [Q, M] in [0, 1]."""
    mass = pairs.material.terms.mass
    return pairs.nearest(lambda beside: share(beside.overlap, mass[np.maximum(beside.others, 0)], beside.others))


def shared_facts(pairs: Pairs) -> NDArray[np.float32]:
    """Share of a known positive's facts that the document states too, float32 [Q, M]; the largest over positives.

    NaN where the positive states none, and in every slot of a collection without facts.
    """
    documents, facts, positives = pairs.documents, pairs.material.facts, pairs.block.positives
    best = np.full(documents.shape, np.nan, np.float32)
    if facts is None:
        return best
    for place in range(min(pairs.material.references, positives.shape[1])):
        own = positives[:, place]
        held = facts[np.maximum(own, 0)]
        rows, slots = np.nonzero(documents != PADDING)
        both = np.asarray(held[rows].multiply(facts[documents[rows, slots]]).sum(axis=1)).ravel()
        count = np.zeros(documents.shape, np.float32)
        count[rows, slots] = both
        values = share(count, np.asarray(held.sum(axis=1)), documents)
        values[(own == PADDING)[:, None] | (documents == own[:, None])] = np.nan
        best = np.fmax(best, values)
    return best


def facts_of(corpus: pd.DataFrame, graph: pd.DataFrame) -> sparse.csr_matrix | None:
    """Return which document states which fact, float32 [N, F]; None where there are none.

    A fact is a (relation, tail) of ``graph`` whose head is a document, or a triple in ``metadata.triples``.

    Parameters
    ----------
    corpus
        ``document_id, metadata``.
    graph
        ``head, relation, tail``.
    """
    row_of = {document: row for row, document in enumerate(corpus.document_id)}
    number: dict[str, int] = {}
    pairs = {
        (row_of[head], number.setdefault(f"{relation}\x1f{tail}", len(number)))
        for head, relation, tail in zip(
            graph.get("head", []), graph.get("relation", []), graph.get("tail", []), strict=True
        )
        if head in row_of
    }
    for row, text in enumerate(corpus.metadata):
        if '"triples"' in text:
            triples = json.loads(text).get("triples")
            for triple in triples if isinstance(triples, list) else []:
                pairs.add((row, number.setdefault(json.dumps(triple), len(number))))
    if not pairs:
        return None
    rows, columns = (np.array(part, np.int64) for part in zip(*sorted(pairs), strict=True))
    return sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (len(corpus), len(number)))
