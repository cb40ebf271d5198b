"""Evidence from the terms of query and document."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING, Candidates
from anmi.judging.evidence.material import Material


def coverage(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Σ idf of the query's terms that the document holds / Σ idf of the query's terms; in [0, 1].

    Parameters
    ----------
    block
        Q queries.
    documents
        int32 [Q, M], padded with -1.
    material
        With the terms of the documents.

    Returns
    -------
    numpy.ndarray
        float32 [Q, M]; NaN in padding and for a query without a known term.
    """
    queries = material.queries(block.query_ids)
    held = material.terms.products(queries, documents, material.terms.held)
    return share(held, queries @ np.ones(queries.shape[1], np.float32), documents)


def match(block: Candidates, documents: NDArray[np.int32], material: Material) -> NDArray[np.float32]:
    """Coverage with each term counted by BM25's saturated frequency; in [0, 1), float32 [Q, M]."""
    queries = material.queries(block.query_ids)
    held = material.terms.products(queries, documents, material.terms.saturated)
    return share(held, queries @ np.ones(queries.shape[1], np.float32), documents)


def share(part: NDArray[np.float32], whole: NDArray[np.float32], documents: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return part [Q, M] / whole [Q], [Q, 1] or [Q, M]; NaN in padding and where there is no whole."""
    whole = np.asarray(whole, np.float32)
    whole = whole if whole.ndim == 2 else whole[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.where((documents == PADDING) | (whole <= 0), np.nan, part / whole)
    return result.astype(np.float32)
