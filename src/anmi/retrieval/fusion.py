"""One ranking of two: BM25's and an encoder's, by their ranks or by their scores.

``benchmarks/fusion.py`` has measured on dev queries how deep lists have to be and how scores are made comparable.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING
from anmi.retrieval.pool import fused_rank

Method = Literal["convex", "rrf"]
METHODS: Final = ("convex", "rrf")
# Deeper lists brought nothing, see benchmarks/results/fusion.json.
DEPTH: Final = 100


class Ranked(NamedTuple):
    """Ranked lists of one system, as searches return them.

    Attributes
    ----------
    documents
        int32 [Q, k], best first, padded with -1; no repeats within a row.
    scores
        float32 [Q, k].
    """

    documents: NDArray[np.int32]
    scores: NDArray[np.float32]

    def top(self, depth: int) -> Ranked:
        """Return the first ``depth`` of each list."""
        return Ranked(self.documents[:, :depth], self.scores[:, :depth])

    def of(self, queries: slice | NDArray[np.bool_]) -> Ranked:
        """Return the lists of some of the queries."""
        return Ranked(self.documents[queries], self.scores[queries])


class Spreads(NamedTuple):
    """In what units scores of two systems are compared.

    BM25's scores grow with the terms of the query, cosines do not.

    Attributes
    ----------
    bm25
        Standard deviation of the scores of all documents of the corpus for each query, [Q].
    dense
        That of the cosines, the same for all queries.
    """

    bm25: NDArray[np.floating[Any]]
    dense: float


class Fused(NamedTuple):
    """Ranked lists of a hybrid, with what each part said.

    Attributes
    ----------
    documents, scores
        As in :class:`Ranked`; -1 and 0 in padding.
    bm25_ranks, bm25_scores, dense_ranks, dense_scores
        float32 [Q, k] of the same documents; NaN where the part does not list the document.
    """

    documents: NDArray[np.int32]
    scores: NDArray[np.float32]
    bm25_ranks: NDArray[np.float32]
    bm25_scores: NDArray[np.float32]
    dense_ranks: NDArray[np.float32]
    dense_scores: NDArray[np.float32]


def fuse(
    bm25: Ranked,
    dense: Ranked,
    k: int,
    spreads: Spreads,
    method: Method = "convex",
    weight: float = 0.5,
) -> Fused:
    """Return the best k documents of both lists together.

    Parameters
    ----------
    bm25, dense
        Lists for the same Q queries, of any depth.
    k
        Documents per query in the result, at least 1; fewer where both lists together are shorter.
    spreads
        What scores of the two are divided by; unused by ``rrf``.
    method
        ``convex``: weight · dense / spread + (1 - weight) · BM25 / spread, where a document that is not listed counts
        as the last of the list, and has 0 where it shares no term with the query, as when BM25's list is not full.
        ``rrf``: reciprocal rank fusion, the sum of 1 / (60 + rank) (Cormack et al. 2009).
    weight
        Of the dense scores, in [0, 1]; unused by ``rrf``.

    Returns
    -------
    Fused
        Best first; documents of equal score stand in the order of their reciprocal ranks, then of the corpus.

    Examples
    --------
    >>> bm25 = Ranked(np.array([[3, 1, 7]], np.int32), np.array([[9.0, 4.0, 2.0]], np.float32))
    >>> dense = Ranked(np.array([[1, 5, 3]], np.int32), np.array([[0.8, 0.5, 0.4]], np.float32))
    >>> found = fuse(bm25, dense, k=2, spreads=Spreads(np.array([2.0]), 0.1))
    >>> found.documents.tolist(), found.bm25_ranks.tolist(), found.dense_ranks.tolist()
    ([[1, 3]], [[2.0, 1.0]], [[1.0, 3.0]])
    """
    found = aligned(bm25, dense)
    if method == "rrf":
        scores = fused_rank(found.bm25_ranks, found.dense_ranks)
    else:
        of_bm25, of_dense = comparable(found, bm25, dense, spreads)
        scores = (weight * of_dense + (1 - weight) * of_bm25).astype(np.float32)
    return _best(found._replace(scores=np.where(found.documents == PADDING, -np.inf, scores)), k)


def aligned(bm25: Ranked, dense: Ranked) -> Fused:
    """Return all documents of two lists with the scores and ranks by each; the scores of the hybrid are 0.

    They stand in the order of their reciprocal ranks, then of the corpus; a stable sort keeps it between equal scores.
    """
    documents = np.concatenate([bm25.documents, dense.documents], axis=1)
    is_dense = np.arange(documents.shape[1]) >= bm25.documents.shape[1]
    ranks = np.concatenate([np.arange(part.documents.shape[1]) for part in (bm25, dense)]).astype(np.float32) + 1
    order = np.argsort(documents, axis=1, kind="stable")
    ascending = np.take_along_axis(documents, order, axis=1)
    listed = ascending != PADDING
    first = listed.copy()
    first[:, 1:] &= ascending[:, 1:] != ascending[:, :-1]
    slot = np.cumsum(first, axis=1) - 1
    shape = len(documents), int(first.sum(axis=1).max(initial=0))
    row, place = np.nonzero(listed)
    column, source = slot[row, place], order[row, place]
    union = np.full(shape, PADDING, np.int32)
    union[row, column] = ascending[row, place]
    values = np.concatenate([bm25.scores, dense.scores], axis=1)[row, source]
    found = {}
    for name, mine in (("bm25", ~is_dense[source]), ("dense", is_dense[source])):
        for what, of in (("ranks", ranks[source]), ("scores", values)):
            filled = np.full(shape, np.nan, np.float32)
            filled[row[mine], column[mine]] = of[mine]
            found[f"{name}_{what}"] = filled
    order = np.argsort(-fused_rank(found["bm25_ranks"], found["dense_ranks"]), axis=1, kind="stable")
    return _taken(Fused(union, np.zeros(shape, np.float32), **found), order)


def comparable(
    found: Fused, bm25: Ranked, dense: Ranked, spreads: Spreads
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the scores of aligned documents by BM25 and the encoder, each in units of its spread, both [Q, M].

    Where the spread is 0, as with a query that shares no term with any document, all are 0.
    """
    # What BM25 does not list shares no term where there was room for it. An encoder's padding was never scored.
    sparse = np.where(bm25.documents == PADDING, 0, bm25.scores)
    cosines = np.where(dense.documents == PADDING, np.inf, dense.scores)
    parts = ((found.bm25_scores, sparse, spreads.bm25), (found.dense_scores, cosines, spreads.dense))
    scaled = []
    for values, listed, spread in parts:
        least = listed.min(axis=1, initial=np.inf, keepdims=True)
        filled = np.where(np.isnan(values), np.where(np.isfinite(least), least, 0), values)
        unit = np.broadcast_to(np.asarray(spread, np.float32).reshape(-1, 1), (len(filled), 1))
        scaled.append(np.divide(filled, unit, out=np.zeros(filled.shape, np.float32), where=unit > 0))
    return scaled[0], scaled[1]


def _best(found: Fused, k: int) -> Fused:
    order = np.argsort(-found.scores, axis=1, kind="stable")[:, :k]
    best = _taken(found, order)
    return best._replace(scores=np.where(best.documents == PADDING, 0, best.scores).astype(np.float32))


def _taken(found: Fused, order: NDArray[np.intp]) -> Fused:
    return Fused(**{name: np.take_along_axis(values, order, axis=1) for name, values in found._asdict().items()})
