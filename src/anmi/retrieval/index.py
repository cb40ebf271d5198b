"""Vectors of either kind get one index: directions a dense one, weights of terms an inverted one."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from anmi.retrieval.dense import DenseIndex
from anmi.retrieval.sparse import SparseIndex

Vectors: TypeAlias = NDArray[np.float32] | scipy.sparse.csr_matrix
Index: TypeAlias = DenseIndex | SparseIndex
# Of a document's largest weight, below which its terms are left out: on SciFact a fifth of them and a ninth of the
# work, for .0004 nDCG@10 (benchmarks/results/sparse.json).
SHARE: Final = 0.1
_MOST: Final = 2000


def build_index(vectors: Vectors, document_ids: list[str], kind: str = "flat") -> Index:
    """Index the vectors of documents, [N, D] or, of a sparse retriever, [N, V]; ``kind`` is that of a dense index.

    Of sparse documents the lightest terms are left out, see :data:`SHARE`.
    """
    if isinstance(vectors, scipy.sparse.spmatrix):
        return SparseIndex.build(vectors, document_ids, SHARE)
    return DenseIndex.build(vectors, document_ids, kind)


def load_index(path: Path) -> Index:
    """Open what an index wrote into a folder."""
    return SparseIndex.load(path) if SparseIndex.is_one(path) else DenseIndex.load(path)


def row_products(left: Vectors, right: Vectors) -> NDArray[np.float64]:
    """Return the inner product of each row with the row beside it, float64 [R], of two [R, D] of the same kind."""
    if isinstance(left, scipy.sparse.spmatrix):
        return np.asarray(left.multiply(right).sum(axis=1), np.float64).ravel()
    return np.asarray(np.einsum("rd,rd->r", left, right, dtype=np.float64))


def spread_of_scores(queries: Vectors, documents: Vectors) -> float:
    """Return the standard deviation of a query's inner products with all documents, the mean over queries.

    Parameters
    ----------
    queries, documents
        [Q, D] and [N, D]. Without queries the first 2,000 documents ask.

    Examples
    --------
    >>> documents = np.array([[1, 0], [0, 1]], np.float32)
    >>> spread_of_scores(documents[:1], documents), spread_of_scores(documents[:0], scipy.sparse.csr_matrix(documents))
    (0.5, 0.5)
    """
    asked = (queries if queries.shape[0] else documents)[:_MOST].astype(np.float64)
    count = max(documents.shape[0], 1)
    if isinstance(documents, scipy.sparse.spmatrix):
        products = asked @ documents.T.tocsr().astype(np.float64)
        mean = np.asarray(products.sum(axis=1)).ravel() / count
        square = np.asarray(products.multiply(products).sum(axis=1)).ravel() / count
        variance = square - mean**2
    else:
        # By moments of the documents, so that no matrix of all cosines is made.
        centre = documents.mean(axis=0, dtype=np.float64)
        moments = (documents.T @ documents).astype(np.float64) / count
        variance = np.einsum("qd,de,qe->q", asked, moments, asked, optimize=True) - (asked @ centre) ** 2
    found = float(np.sqrt(np.maximum(variance, 0)).mean()) if asked.shape[0] else 0.0
    # Of one document, or of documents that are all alike, nothing is put in order by the encoder anyway.
    return round(found, 6) if found > 1e-6 else 1.0
