"""The best documents of queries by the scores of all."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Documents of which the best stands for all, when a first threshold is looked for; so many groups per wanted one.
_GROUPS: Final = 8


def best(full: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
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


def _keys(documents: NDArray[Any], scores: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return scores, not below 0, and documents as one number to sort: bits of such floats are in their order."""
    falling = ~np.ascontiguousarray(scores).view(np.uint32)
    return falling.astype(np.uint64) << np.uint64(32) | documents.astype(np.uint32)


def of_keys(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return documents and scores; of the highest key, and of those with score 0, -1 and 0."""
    documents = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    return documents, (~(keys >> np.uint64(32)).astype(np.uint32)).view(np.float32)


def kth_at_least(full: NDArray[np.float32], k: int) -> NDArray[np.float32]:
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
    found: NDArray[np.float32] = np.partition(full, full.shape[1] - k, axis=1)[:, full.shape[1] - k]
    return found
