"""The best documents of queries by the scores of all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def best(full: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the k best documents with their scores, [Q, k]; padded with -1 and 0 where a score is 0.

    Examples
    --------
    >>> best(np.array([[1.0, 0.0, 3.0, 1.0]], np.float32), 4)[0].tolist()
    [[2, 0, 3, -1]]
    """
    least = np.partition(full, full.shape[1] - k, axis=1)[:, full.shape[1] - k]
    row, document = np.nonzero((full >= least[:, None]) & (full > 0))
    value = full[row, document]
    # Stable, so that documents of equal score stay in the order of the corpus.
    order = np.lexsort((-value, row))
    row, document, value = row[order], document[order], value[order]
    counts = np.bincount(row, minlength=len(full))
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = place < k
    slots = row[kept], place[kept]
    documents = np.full((len(full), k), -1, np.int32)
    scores = np.zeros((len(full), k), np.float32)
    documents[slots], scores[slots] = document[kept], value[kept]
    return documents, scores
