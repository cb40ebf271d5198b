"""Labelled documents beside the pool that they could have come from, as examples to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import Candidates


@dataclass(frozen=True)
class Examples:
    """n examples.

    Attributes
    ----------
    values
        Inputs, float32 [n, K]; NaN where unknown.
    labelled
        True for labelled documents, False for those of the pool, [n].
    weights
        Each query has 1 for its labelled documents and 1 for its pool, [n].
    fold, query
        Fold and number of the query, [n].
    """

    values: NDArray[np.float32]
    labelled: NDArray[np.bool_]
    weights: NDArray[np.float64]
    fold: NDArray[np.int64]
    query: NDArray[np.int64]

    @property
    def queries(self) -> int:
        """How many queries they are of."""
        return len(np.unique(self.query))


def examples(block: Candidates, values: NDArray[np.float32], fold: NDArray[np.int64]) -> Examples:
    """Take a block as examples.

    Parameters
    ----------
    block
        Rows with a labelled document first and documents of the pool behind it; a query may have several.
    values
        Inputs, [R, M, K].
    fold
        Of each row, [R].
    """
    _, query, rows = np.unique(block.query_ids, return_inverse=True, return_counts=True)
    filled = block.filled
    labelled = np.zeros(filled.shape, bool)
    labelled[:, 0] = True
    pool = (filled & ~labelled).sum(axis=1, keepdims=True)
    weights = np.where(labelled, 1.0, 1.0 / np.maximum(pool, 1)) / rows[query][:, None]
    row, slot = np.nonzero(filled)
    return Examples(values[row, slot], labelled[row, slot], weights[row, slot], fold[row], query[row])


def joined(parts: Sequence[Examples]) -> Examples | None:
    """Put the examples of several blocks together, of which no query is in two; None where there are none."""
    if not parts:
        return None
    first = np.cumsum([0, *(part.queries for part in parts)])
    numbered = [part.query + start for part, start in zip(parts, first[:-1], strict=True)]
    names = [field.name for field in fields(Examples)]
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names[:-1]}
    return Examples(**whole, query=np.concatenate(numbered))
