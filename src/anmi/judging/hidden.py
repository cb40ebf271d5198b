"""Hidden positives: known positives that play the false negative.

For a query with several positives one of them is put among its candidates, as if nobody had
labelled it, and the others stay known. That gives relevant documents to learn and to calibrate on
without any false-negative label, measured as candidates are: one document beside all that is known
of the query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anmi import seeds
from anmi.candidates import PADDING, Candidates
from anmi.ragged import Bools, Float32s, Float64s, Int64s


@dataclass(frozen=True)
class Examples:
    """n examples.

    Attributes
    ----------
    values
        Inputs, [n, K]; NaN where unknown.
    labelled
        True for labelled documents, False for those of the pool, [n].
    weights
        Each query has 1 for its labelled documents and 1 for its pool, [n].
    fold, query
        Fold and number of the query, [n].
    """

    values: NDArray[Any]
    labelled: Bools
    weights: Float64s
    fold: Int64s
    query: Int64s

    def take(self, rows: Bools) -> Examples:
        """Return some of them."""
        return Examples(*(values[rows] for values in vars(self).values()))

    @property
    def queries(self) -> int:
        """How many queries they are of."""
        return len(np.unique(self.query))


def examples(
    parts: Iterable[tuple[Candidates, Float32s, Int64s]],
) -> Examples | None:
    """Take blocks, of which no query is in two, as examples; None where there are none.

    Parameters
    ----------
    parts
        Of each block: rows with a labelled document first and documents of the pool behind it, of
        which a query may have several; their inputs, [R, M, K]; and the fold of each row, [R].
    """
    found = list[tuple[NDArray[Any], ...]]()
    queries = 0
    for block, values, fold in parts:
        names, query, rows = np.unique(block.query_ids, return_inverse=True, return_counts=True)
        filled = block.filled
        labelled = filled & (np.arange(filled.shape[1]) == 0)
        pool = (filled & ~labelled).sum(axis=1, keepdims=True)
        weights = np.where(labelled, 1.0, 1.0 / np.maximum(pool, 1)) / rows[query][:, None]
        row, slot = np.nonzero(filled)
        at = row, slot
        found.append((values[at], labelled[at], weights[at], fold[row], queries + query[row]))
        queries += len(names)
    return Examples(*map(np.concatenate, zip(*found, strict=True))) if queries else None


def hide(
    block: Candidates, depth: int, most: int | None = None, seed: int = 0
) -> tuple[Candidates, Int64s, Int64s]:
    """Return a block in which positives of queries with several are hidden, one in each row.

    Parameters
    ----------
    block
        One row per query, with ``dense`` for candidates and positives.
    depth
        Candidates kept per row, the most similar ones.
    most
        Positives hidden per query, at most, drawn by the query's own stream; None hides each of
        them.
    seed
        Of the run.

    Returns
    -------
    hidden
        One row per hidden positive, which comes first among the candidates; the query's other
        positives are known.
    row, place
        Where in ``block.positives`` the hidden one stands, int64 [R] each.

    Examples
    --------
    >>> block = Candidates(np.array(["q"]), np.array([[3, 5]], np.int32), np.array([[1, 2]], np.int32),
    ...                    np.zeros((1, 2), np.uint8), {"dense": np.array([[0.1, 0.2]], np.float32)},
    ...                    {"dense": np.array([[0.3, 0.4]], np.float32)})
    >>> hidden, row, place = hide(block, depth=1)
    >>> hidden.positives.tolist(), hidden.documents.tolist(), place.tolist()
    ([[5], [3]], [[3, 2], [5, 2]], [0, 1])
    """
    known = block.positives != PADDING
    hidden = known & (known.sum(axis=1, keepdims=True) > 1)
    if most is not None:
        draws = np.where(
            known,
            seeds.uniform(seed, "judging/hidden", block.query_ids.tolist(), block.positives),
            2.0,
        )
        hidden &= np.argsort(np.argsort(draws, axis=1, kind="stable"), axis=1) < most
    row, place = np.nonzero(hidden)
    # In the place of each hidden one and behind it stand those that come after it.
    others = np.arange(max(known.shape[1] - 1, 0))
    return _beside(block, row, place, others + (others >= place[:, None]), depth), row, place


def shown(block: Candidates, depth: int) -> Candidates:
    """Return a row for each known positive: the positive first, behind it the ``depth`` most similar candidates."""
    row, place = np.nonzero(block.positives != PADDING)
    return _beside(block, row, place, np.zeros((len(row), 0), np.int64), depth)


def _beside(
    block: Candidates,
    row: Int64s,
    place: Int64s,
    others: Int64s,
    depth: int,
) -> Candidates:
    """Put positives [R] before their rows' nearest candidates; those at the places ``others`` [R, P'] stay known."""
    near = nearest(block, depth)

    def placed(own: NDArray[Any], candidates: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate(
            [own[row, place][:, None], np.take_along_axis(candidates, near, axis=1)[row]], axis=1
        )

    shared = block.columns.keys() & block.positive_columns.keys()
    documents = placed(block.positives, block.documents)
    return Candidates(
        query_ids=block.query_ids[row],
        positives=block.positives[row[:, None], others],
        documents=documents,
        source=np.zeros(documents.shape, np.uint8),
        columns={
            name: placed(block.positive_columns[name], block.columns[name])
            for name in sorted(shared)
        },
        positive_columns={
            name: block.positive_columns[name][row[:, None], others] for name in sorted(shared)
        },
    )


def nearest(block: Candidates, depth: int) -> Int64s:
    """Return the places of the ``depth`` candidates of each row that are most similar to the query, [Q, depth]."""
    similarity = np.where(block.filled, np.nan_to_num(block.columns["dense"], nan=-2.0), -np.inf)
    return np.lexsort((block.documents, -similarity), axis=1)[:, :depth]


def reached(similarity: Float32s) -> Bools:
    """True where retrieval would have brought the hidden one: as similar as the least similar candidate; bool [R].

    Of relevant documents that are nothing like the query no candidate has to be told.

    Parameters
    ----------
    similarity
        Of the hidden document, and behind it of the row's candidates, [R, 1 + depth]; NaN where
        there is none.
    """
    least = np.where(np.isnan(similarity[:, 1:]), np.inf, similarity[:, 1:]).min(
        axis=1, initial=np.inf
    )
    return (similarity[:, 0] >= least) & np.isfinite(least)
