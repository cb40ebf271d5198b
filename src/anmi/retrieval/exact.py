"""Exact nearest neighbours of unit vectors: blocked matrix products with a running threshold.

The last bits of a matrix product depend on the shape of its blocks and on the number of threads. So products only
choose whom to score: a document stays as long as rounding may hide that it is among the best, and what stays is scored
by one formula that looks at nothing but the two vectors. Results are the same for any blocks, shards and threads.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi.retrieval.best import kth_at_least

# Of one product: enough of both for BLAS to be at its best, and scores that stay in the processor's last cache.
_ROWS: Final = 512
_BLOCK: Final = 8192
# Documents kept for each that is wanted before those below the threshold are thrown out again.
_KEPT: Final = 4


def similarities(
    queries: NDArray[np.float32], embeddings: NDArray[np.float32], documents: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Cosines of each query with its own documents: float32 [Q, M] from vectors [Q, D] and [N, D]; NaN in padding."""
    from anmi.retrieval.sums import dot_products

    values = np.empty(documents.shape, np.float32)
    dot_products(np.ascontiguousarray(queries, np.float32), np.asarray(embeddings), documents, values)
    values[documents < 0] = np.nan
    return values


def nearest(
    queries: NDArray[np.float32], embeddings: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the k nearest documents of each query.

    Parameters
    ----------
    queries, embeddings
        Vectors of length 1 at most, float32 [Q, D] and [N, D].
    k
        At most N.

    Returns
    -------
    documents, scores
        int32 and float32 [Q, k], best first; equal scores stand in the order of the corpus. -1 and -inf where vectors
        are NaN.

    Examples
    --------
    >>> vectors = np.eye(3, dtype=np.float32)
    >>> nearest(vectors[:1], vectors, 2)[0].tolist()
    [[0, 1]]
    """
    embeddings = np.asarray(embeddings)
    documents, scores = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.float32)
    for start in range(0, len(queries) if k else 0, _ROWS):
        some = np.ascontiguousarray(queries[start : start + _ROWS], np.float32)
        found = _among_the_best(some, embeddings, k)
        # Vectors of a training that diverged are no numbers, and nothing is near them.
        found = np.pad(found, ((0, 0), (0, max(k - found.shape[1], 0))), constant_values=-1)
        values = np.nan_to_num(similarities(some, embeddings, found), nan=-np.inf)
        order = np.lexsort((found, -values), axis=1)[:, :k]
        documents[start : start + _ROWS] = np.take_along_axis(found, order, axis=1)
        scores[start : start + _ROWS] = np.take_along_axis(values, order, axis=1)
    return documents, scores


def _among_the_best(queries: NDArray[np.float32], embeddings: NDArray[np.float32], k: int) -> NDArray[np.int32]:
    """Return all documents that may be among the k best of each query for all that rounding hides, int32 [Q, ≥ k]."""
    count, size = embeddings.shape
    # Both sums of D products are off by D roundings at most, each way.
    slack = np.float32(4 * size * np.finfo(np.float32).eps)
    kept = _Kept(len(queries), _KEPT * k, k, slack)
    room, above = np.empty(len(queries) * _BLOCK, np.float32), np.empty(len(queries) * _BLOCK, np.bool_)
    for start in range(0, count, _BLOCK):
        block = embeddings[start : start + _BLOCK]
        cells, shape = len(queries) * len(block), (len(queries), len(block))
        scores, found = room[:cells].reshape(shape), above[:cells].reshape(shape)
        np.matmul(queries, block.T, out=scores)
        if start == 0:
            kept.least = kth_at_least(scores, k)[:, None] - slack
        place = np.flatnonzero(np.greater_equal(scores, kept.least, out=found))
        row, column = np.divmod(place, scores.shape[1])
        kept.add(row, column.astype(np.int32) + np.int32(start), scores.ravel()[place])
    kept.cut()
    return kept.documents[:, : int(kept.held.max(initial=0))]


class _Kept:
    """The documents of each query that are not below its threshold; thrown out once there are too many.

    ``least``, float32 [Q, 1], is never above what the k-th best is surely worth.
    """

    def __init__(self, queries: int, width: int, k: int, slack: np.float32) -> None:
        self.documents = np.full((queries, width), -1, np.int32)
        self.scores = np.full((queries, width), -np.inf, np.float32)
        self.held = np.zeros(queries, np.int64)
        self.least = np.full((queries, 1), -np.inf, np.float32)
        self._k, self._slack = k, slack

    def add(self, row: NDArray[np.int64], documents: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        """Keep documents, given row by row."""
        counts = np.bincount(row, minlength=len(self.held))
        if (self.held + counts).max(initial=0) > self.documents.shape[1]:
            self.cut()
            self._widen(int((self.held + counts).max()))
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + self.held[row]
        self.documents[row, place], self.scores[row, place] = documents, scores
        self.held += counts

    def cut(self) -> None:
        """Raise the threshold to the k-th best and throw out what is below it."""
        width = self.scores.shape[1]
        if width > self._k:
            kth = np.partition(self.scores, width - self._k, axis=1)[:, width - self._k, None]
            self.least = np.maximum(self.least, kth - self._slack)
        row, place = np.nonzero((self.scores >= self.least) & (self.documents >= 0))
        documents, scores = self.documents[row, place], self.scores[row, place]
        self.documents.fill(-1)
        self.scores.fill(-np.inf)
        self.held[:] = 0
        counts = np.bincount(row, minlength=len(self.held))
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.documents[row, place], self.scores[row, place] = documents, scores
        self.held += counts

    def _widen(self, least: int) -> None:
        more = max(least - self.documents.shape[1], 0)
        self.documents = np.pad(self.documents, ((0, 0), (0, more)), constant_values=-1)
        self.scores = np.pad(self.scores, ((0, 0), (0, more)), constant_values=-np.inf)
