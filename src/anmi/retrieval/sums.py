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
    starts: NDArray[Any],
    terms: NDArray[Any],
    values: NDArray[np.float32],
    left_starts: tuple[NDArray[Any], NDArray[Any]],
    left_terms: tuple[NDArray[Any], NDArray[Any]],
    left_values: tuple[NDArray[np.float32], NDArray[np.float32]],
    table: NDArray[np.float32],
    sums: NDArray[np.float32],
) -> None:
    """Put Σ first[q, term] · value[document, term] and Σ second[q, term] into ``sums`` [2, Q, M].

    Both are over the terms of each of ``documents`` [Q, M], padded with -1; two at once, as one has to wait for itself.
    The documents' ``terms`` are sparse [N, V]; ``left`` are the first and the second, sparse [Q, V]. Unsigned numbers
    of terms save looking whether they count from the end, a third of the time. ``table`` has room for a row of both,
    [V, 2] zeros, and is left so.
    """
    for query in range(len(documents)):
        for side in range(2):
            for place in range(left_starts[side][query], left_starts[side][query + 1]):
                table[left_terms[side][place], side] += left_values[side][place]
        for slot in range(documents.shape[1]):
            document = documents[query, slot]
            if document >= 0:
                first, second = np.float32(0), np.float32(0)
                for place in range(starts[document], starts[document + 1]):
                    term = terms[place]
                    first += table[term, 0] * values[place]
                    second += table[term, 1]
                sums[0, query, slot], sums[1, query, slot] = first, second
        for side in range(2):
            for place in range(left_starts[side][query], left_starts[side][query + 1]):
                table[left_terms[side][place], side] = 0


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
