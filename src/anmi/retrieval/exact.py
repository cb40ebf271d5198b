"""Exact nearest neighbours of unit vectors: blocked matrix products with a running threshold.

The last bits of a matrix product depend on the shape of its blocks and on the number of threads. So products only
choose whom to score: a document stays as long as rounding may hide that it is among the best, and what stays is scored
by one formula that looks at nothing but the two vectors. Results are the same for any blocks, shards and threads.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# Documents of which the best stands for all, when a first threshold is looked for; so many groups per wanted one.
_GROUPS: Final = 8


def best(full: Floats, k: int) -> tuple[NDArray[np.int32], Floats]:
    """Return the k best documents with their scores, [Q, k]; padded with -1 and 0 where a score is 0.

    Parameters
    ----------
    full
        Scores of all documents, none below 0, float32 [Q, N].
    k
        At most N. Equal scores stand in the order of the corpus.

    Examples
    --------
    >>> best(np.array([[1.0, 0.0, 3.0, 1.0]], np.float32), 4)[0].tolist()
    [[2, 0, 3, -1]]
    """
    if not k or not len(full):
        return np.full((len(full), k), -1, np.int32), np.zeros((len(full), k), np.float32)
    least = np.maximum(kth_at_least(full, k), np.finfo(np.float32).smallest_subnormal)
    row, document = np.divmod(np.flatnonzero(full >= least[:, None]), full.shape[1])
    counts = np.bincount(row, minlength=len(full))
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys = np.full((len(full), max(int(counts.max()), k)), np.iinfo(np.uint64).max, np.uint64)
    keys[row, place] = _keys(document, full[row, document])
    return of_keys(np.sort(keys, axis=1)[:, :k])


def _keys(documents: NDArray[Any], scores: Floats) -> NDArray[np.uint64]:
    """Return scores, not below 0, and documents as one number to sort: bits of such floats are in their order."""
    falling = ~np.ascontiguousarray(scores).view(np.uint32)
    return falling.astype(np.uint64) << np.uint64(32) | documents.astype(np.uint32)


def of_keys(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], Floats]:
    """Return documents and scores; of the highest key, and of those with score 0, -1 and 0."""
    documents = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    return documents, (~(keys >> np.uint64(32)).astype(np.uint32)).view(np.float32)


def kth_at_least(full: Floats, k: int) -> Floats:
    """Return what the k-th best score of each row is surely worth, float32 [Q], from scores [Q, N].

    The columns are put into several times k groups; the best of each is a score, so k scores are as good as the k-th of
    these. That is nearly the k-th best of all, and a tenth of the work of finding that. -inf where N is below k.
    """
    size = full.shape[1] // max(_GROUPS * k, 1)
    if size > 1:
        groups = full.shape[1] // size
        full = full[:, : size * groups].reshape(len(full), size, groups).max(axis=1)
    if not k or full.shape[1] < k:
        return np.full(len(full), -np.inf, np.float32)
    found: Floats = np.partition(full, full.shape[1] - k, axis=1)[:, full.shape[1] - k]
    return found


# Of one product: enough of both for BLAS to be at its best, and scores that stay in the processor's last cache.
_ROWS: Final = 512
_BLOCK: Final = 8192
# Documents kept for each that is wanted before those below the threshold are thrown out again.
_KEPT: Final = 4


def similarities(queries: Floats, embeddings: Floats, documents: NDArray[np.int32]) -> Floats:
    """Cosines of each query with its own documents: float32 [Q, M] from vectors [Q, D] and [N, D]; NaN in padding."""
    from anmi.retrieval.sums import dot_products

    values = np.empty(documents.shape, np.float32)
    dot_products(np.ascontiguousarray(queries, np.float32), np.asarray(embeddings), documents, values)
    values[documents < 0] = np.nan
    return values


def nearest(queries: Floats, embeddings: Floats, k: int) -> tuple[NDArray[np.int32], Floats]:
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


def _among_the_best(queries: Floats, embeddings: Floats, k: int) -> NDArray[np.int32]:
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

    def add(self, row: NDArray[np.int64], documents: NDArray[np.int32], scores: Floats) -> None:
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
        self.add(row, documents, scores)

    def _widen(self, least: int) -> None:
        more = max(least - self.documents.shape[1], 0)
        self.documents = np.pad(self.documents, ((0, 0), (0, more)), constant_values=-1)
        self.scores = np.pad(self.scores, ((0, 0), (0, more)), constant_values=-np.inf)
