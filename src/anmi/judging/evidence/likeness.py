"""Evidence from comparing a document with the known positives of the query.

Each function returns, for every document, the value for the known positive it is closest to. A positive is not
compared with itself, so with one known positive its own value is NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING, Candidates
from anmi.errors import AnmiError
from anmi.judging.evidence.lexical import share
from anmi.judging.evidence.material import Material
from anmi.retrieval.dense import similarities


def likeness(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Cosine with the nearest known positive, float32 [Q, M] in [-1, 1].

    Raises
    ------
    AnmiError
        Without vectors.
    """
    vectors = material.vectors
    if vectors is None:
        raise AnmiError("the evidence likeness needs document vectors; leave it out or give an encoder")
    return _nearest(
        block, documents, material, lambda own: similarities(vectors[np.maximum(own, 0)], vectors, documents)
    )


def likeness_terms(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Tf-idf cosine with the nearest known positive, float32 [Q, M] in [0, 1]."""
    terms = material.terms

    def compare(own: NDArray[np.int32]) -> NDArray[np.float32]:
        dot = terms.products(
            terms.vectors(own), documents, lambda e: ((1 + np.log(e.count)) * terms.idf[e.term]).astype(np.float32)
        )
        return share(dot, _norms(material, documents), documents)

    return _nearest(block, documents, material, compare)


def containment(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Share of a known positive's terms, by idf, that the document holds; float32 [Q, M] in [0, 1].

    A document that holds all of them says at least what the positive says.
    """
    return _nearest(
        block,
        documents,
        material,
        lambda own: share(_overlap(material, own, documents), material.terms.weighted(own).sum(axis=1), documents),
    )


def contained(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Share of the document's terms, by idf, that a known positive holds; float32 [Q, M] in [0, 1]."""
    terms = material.terms
    unique, place = np.unique(documents, return_inverse=True)
    mass = np.asarray(terms.weighted(unique).sum(axis=1)).ravel()[place].reshape(documents.shape)
    return _nearest(block, documents, material, lambda own: share(_overlap(material, own, documents), mass, documents))


def _overlap(material: Material, own: NDArray[np.int32], documents: NDArray[np.int32]) -> NDArray[np.float32]:
    """Σ idf of the terms that each row's positive and document share, [Q, M]."""
    left = material.terms.weighted(own)
    return material.terms.products(left, documents, lambda entries: np.ones(len(entries.term), np.float32))


def _norms(material: Material, documents: NDArray[np.int32]) -> NDArray[np.float32]:
    """Length of the tf-idf vector of each document, [Q, M]."""
    terms = material.terms
    unique, place = np.unique(documents, return_inverse=True)
    chosen = terms.counts[np.maximum(unique, 0)]
    chosen.data = ((1 + np.log(chosen.data)) * terms.idf[chosen.indices]) ** 2
    norm: NDArray[np.float32] = np.sqrt(np.asarray(chosen.sum(axis=1)).ravel()).astype(np.float32)
    return norm[place].reshape(documents.shape)


def _nearest(
    block: Candidates,
    documents: NDArray[np.int32],
    material: Material,
    compare: Callable[[NDArray[np.int32]], NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Largest value over the known positives; ``compare`` takes one positive a row, int32 [Q]."""
    best = np.full(documents.shape, np.nan, np.float32)
    for place in range(min(material.references, block.positives.shape[1])):
        own = block.positives[:, place]
        values = np.where((own == PADDING)[:, None] | (documents == own[:, None]), np.nan, compare(own))
        best = np.fmax(best, values.astype(np.float32))
    return best
