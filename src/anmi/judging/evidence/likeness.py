"""Evidence from comparing a document with the known positives of the query.

Each function returns, for every document, the value for the known positive it is closest to. A positive is not
compared with itself, so with one known positive its own value is NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.judging.evidence.lexical import share
from anmi.judging.evidence.pairs import Beside, Pairs
from anmi.retrieval.exact import similarities


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
