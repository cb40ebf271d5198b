"""Sums over sparse rows, compiled by numba: SciPy and NumPy take ten times as long, as they copy the rows to be summed.

Other threads run meanwhile. Importing this compiles nothing; what is compiled at the first call is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    try:
        made: Callable[..., None] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # There is no folder to keep it in.
        made = numba.njit(nogil=True)(function)
    return made


@_compiled
def row_products(
    documents: NDArray[np.int32],
    left_starts: NDArray[Any],
    left_terms: NDArray[Any],
    left_values: NDArray[np.float32],
    right_starts: NDArray[Any],
    right_terms: NDArray[Any],
    right_values: NDArray[np.float32],
    table: NDArray[np.float32],
    sums: NDArray[np.float32],
) -> None:
    """Put Σ left[q, term] · right[document, term] into ``sums`` [Q, M], for ``documents`` [Q, M] padded with -1.

    Left is sparse [Q, V], right sparse [N, V]; ``table`` has room for a row, V zeros, and is left so.
    """
    for query in range(len(documents)):
        first, last = left_starts[query], left_starts[query + 1]
        if first == last:
            continue
        for place in range(first, last):
            table[left_terms[place]] += left_values[place]
        for slot in range(documents.shape[1]):
            document = documents[query, slot]
            if document >= 0:
                total = np.float32(0)
                for place in range(right_starts[document], right_starts[document + 1]):
                    total += table[right_terms[place]] * right_values[place]
                sums[query, slot] = total
        for place in range(first, last):
            table[left_terms[place]] = 0


@_compiled
def add_postings(
    rows: NDArray[np.int64],
    terms: NDArray[np.int64],
    starts: NDArray[Any],
    documents: NDArray[np.int32],
    weights: NDArray[np.float32],
    scores: NDArray[np.float32],
) -> None:
    """Add the postings of each of ``terms`` [T] to the scores of its row, ``rows`` [T] of ``scores`` [Q, N]."""
    for number in range(len(terms)):
        row, term = rows[number], terms[number]
        for place in range(starts[term], starts[term + 1]):
            scores[row, documents[place]] += weights[place]
