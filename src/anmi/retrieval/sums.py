"""Numba compiles sums over rows: SciPy and NumPy copy these first and take up to ten times as long.

Other threads run meanwhile. Importing this compiles nothing; what is compiled at the first call is
kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from anmi.ragged import Float32s

Whole: TypeAlias = NDArray[Any]
# Scores of which the highest is looked for before each by itself.
_LOOKED_AT: Final = 64


def _compiled(function: Callable[..., Any], allowed: Collection[str] = ()) -> Callable[..., Any]:
    """Compile a function, with the freedoms in arithmetic that LLVM calls by these names."""
    options = {"nogil": True, "fastmath": {*allowed}}
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # There is no folder to keep it in.
        compiled = numba.njit(**options)(function)
    return compiled


# A sum may be made of several that are added up side by side; always of the same ones.
_in_any_order: Final = partial(_compiled, allowed=("reassoc", "contract"))


@_in_any_order
def dot_products(
    queries: Float32s, vectors: Float32s, documents: Whole, products: Float32s
) -> None:
    """Put Σ query · vector of queries [Q, D] and documents [Q, M], of [N, D], into ``products``.

    Each looks at nothing but its two vectors; it is 0 in padding.
    """
    for query in range(len(documents)):
        for slot in range(documents.shape[1]):
            document = documents[query, slot]
            total = np.float32(0)
            if document >= 0:
                for place in range(queries.shape[1]):
                    total += queries[query, place] * vectors[document, place]
            products[query, slot] = total


@_compiled
def row_products(
    documents: Whole,
    starts: Whole,
    terms: Whole,
    values: Float32s,
    left_starts: tuple[Whole, Whole],
    left_terms: tuple[Whole, Whole],
    left_values: tuple[Float32s, Float32s],
    table: Float32s,
    sums: Float32s,
) -> None:
    """Put Σ first[q, term] · value[document, term] and Σ second[q, term] into ``sums`` [2, Q, M].

    Both are over the terms of each of ``documents`` [Q, M], padded with -1; two at once, as one has
    to wait for itself. The documents' ``terms`` are sparse [N, V]; ``left`` are the first and the
    second, sparse [Q, V]. Unsigned numbers of terms save looking whether they count from the end, a
    third of the time. ``table`` has room for a row of both, [V, 2] zeros, and is left so.
    """
    for query in range(len(documents)):
        for side in range(2):
            for place in range(left_starts[side][query], left_starts[side][query + 1]):
                table[left_terms[side][place], side] += left_values[side][place]
        for slot in range(documents.shape[1]):
            document = documents[query, slot]
            if document >= 0:
                first = np.float32(0)
                second = np.float32(0)
                for place in range(starts[document], starts[document + 1]):
                    term = terms[place]
                    first += table[term, 0] * values[place]
                    second += table[term, 1]
                sums[0, query, slot] = first
                sums[1, query, slot] = second
        for side in range(2):
            for place in range(left_starts[side][query], left_starts[side][query + 1]):
                table[left_terms[side][place], side] = 0


@_compiled
def add_postings(
    rows: Whole,
    terms: Whole,
    starts: Whole,
    documents: Whole,
    weights: Float32s,
    scores: Float32s,
) -> None:
    """Add the postings of ``terms`` [T] to the scores of their ``rows`` [T] of ``scores`` [Q, N].

    ``starts`` and ``documents`` are unsigned, as in :func:`row_products`: here that saves half of
    the time.
    """
    for number in range(len(terms)):
        term = terms[number]
        row = scores[rows[number]]
        for place in range(starts[term], starts[term + 1]):
            row[documents[place]] += weights[place]


@_compiled
def best_of_rows(full: Float32s, keys: Whole) -> None:
    """Put the best of each row of scores [Q, N], none below 0, into ``keys`` [Q, k], zeros before.

    A key is the bits of a score above the complement of its document's number, so that the larger
    key is the better and of equal scores the first in the corpus; they are in no order. Floats from
    0 on are in the order of their bits, which can be compared several at a time.
    """
    for row in range(len(full) if keys.shape[1] else 0):
        bits = full[row].view(np.int32)
        best = keys[row]
        lowest = np.int32(0)
        for start in range(0, len(bits), _LOOKED_AT):
            end = min(start + _LOOKED_AT, len(bits))
            highest = np.int32(0)
            for place in range(start, end):
                highest = max(highest, bits[place])
            if highest > lowest:
                for place in range(start, end):
                    # A later document of the same score is not better.
                    if bits[place] > lowest:
                        complement = np.uint64(0xFFFFFFFF - place)
                        _replace(best, np.uint64(bits[place]) << np.uint64(32) | complement)
                        lowest = np.int32(best[0] >> np.uint64(32))


@_compiled
def _replace(keys: Whole, key: np.uint64) -> None:
    """Put a key in the place of the smallest of a heap; heapq would need a list."""
    place = 0
    child = 1
    while child < len(keys):
        if child + 1 < len(keys) and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place] = keys[child]
        place = child
        child = 2 * child + 1
    keys[place] = key
