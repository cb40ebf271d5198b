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
    return _nearest(block, documents, material, lambda own, others: similarities(vectors[own], vectors, others))


def likeness_terms(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Tf-idf cosine with the nearest known positive, float32 [Q, M] in [0, 1]."""
    terms = material.terms
    some = (terms.lengths > 0).astype(np.float32)

    def compare(own: NDArray[np.int32], others: NDArray[np.int32]) -> NDArray[np.float32]:
        cosine = np.minimum(terms.products(terms.unit[own], others, terms.unit), 1)
        return share(cosine, some[own][:, None] * some[np.maximum(others, 0)], others)

    return _nearest(block, documents, material, compare)


def containment(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Share of a known positive's terms, by idf, that the document holds; float32 [Q, M] in [0, 1].

    A document that holds all of them says at least what the positive says.
    """
    mass = material.terms.mass
    return _nearest(
        block, documents, material, lambda own, others: share(_overlap(material, own, others), mass[own], others)
    )


def contained(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Share of the document's terms, by idf, that a known positive holds; float32 [Q, M] in [0, 1]."""
    mass = material.terms.mass
    return _nearest(
        block,
        documents,
        material,
        lambda own, others: share(_overlap(material, own, others), mass[np.maximum(others, 0)], others),
    )


def _overlap(material: Material, own: NDArray[np.int32], documents: NDArray[np.int32]) -> NDArray[np.float32]:
    """Σ idf of the terms that each row's positive and document share, [Q, M]."""
    return material.terms.products(material.terms.weighted(own), documents, material.terms.held)


def _nearest(
    block: Candidates,
    documents: NDArray[np.int32],
    material: Material,
    compare: Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Largest value over the known positives; ``compare`` takes one positive a row, [R], and documents [R, M]."""
    best = np.full(documents.shape, np.nan, np.float32)
    for place in range(min(material.references, block.positives.shape[1])):
        row = np.nonzero(block.positives[:, place] != PADDING)[0]
        own, others = block.positives[row, place], documents[row]
        values = np.where(others == own[:, None], np.nan, compare(own, others))
        best[row] = np.fmax(best[row], values.astype(np.float32))
    return best
