"""Rankings of several systems, the parts of a search, are fused into one, by ranks or by scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING
from anmi.ragged import Float32s, Int32s, in_rows
from anmi.retrieval.pool import compacted, fused_rank, repeats_blanked, without

Method = Literal["convex", "rrf"]
# Lists of 1,000 brought .001 nDCG@10 on dev queries of four collections.
DEPTH: Final = 100
_MOST_PASSAGES: Final = 5
# Passages that are ranked for one query, which bounds memory; the same whatever depth is asked for.
_DEEPEST: Final = 10_000
# Parts of these names list all documents that share a term with the query, where their lists are
# not full; others have scored whatever they do not list.
_OF_TERMS: Final = ("bm25", "sparse")


class Ranked(NamedTuple):
    """Ranked lists of one system, as searches return them.

    Attributes
    ----------
    documents
        int32 [Q, k], best first, padded with -1; no repeats within a row.
    scores
        float32 [Q, k].
    """

    documents: Int32s
    scores: Float32s

    def top(self, depth: int) -> Ranked:
        """Return the first ``depth`` of each list."""
        return Ranked(self.documents[:, :depth], self.scores[:, :depth])


Search: TypeAlias = Callable[[int], Ranked]


def best_documents(
    search: Search,
    first: Int32s,
    depth: int,
    excluded: Int32s | None = None,
) -> tuple[Ranked, Int32s]:
    """Return the best documents of each query, ranked by their best passages, and these passages.

    The search is asked for more passages until each query has ``depth`` documents, or the search
    has no more, or a query's best documents fill thousands of passages. What is measured, fitted
    and deployed is ranked by this one function.

    Parameters
    ----------
    search
        From a number of passages to the best ones of Q queries.
    first
        Of each passage the first one of its document, which stands for it, int32 [N]; -1 for what
        is never a result, such as a copy.
    depth
        Documents per query, at most.
    excluded
        A document of each query that is not a result, int32 [Q], -1 where there is none.

    Returns
    -------
    Ranked, numpy.ndarray
        Documents and their scores [Q, depth], and their best passages, int32 [Q, depth]; -1 and 0
        in padding, which stays where a search found no more.

    Examples
    --------
    >>> passages = np.array([[2, 1, 3, 0]], np.int32)
    >>> scores = np.array([[9.0, 8.0, 7.0, 6.0]], np.float32)
    >>> ranked, best = best_documents(
    ...     lambda count: Ranked(passages[:, :count], scores[:, :count]),
    ...     np.array([0, 0, 0, 3], np.int32),
    ...     depth=2,
    ... )
    >>> ranked.documents.tolist(), ranked.scores.tolist(), best.tolist()
    ([[0, 3]], [[9.0, 7.0]], [[2, 3]])
    """
    passages = depth * _passages_a_document(first)
    if excluded is not None and (excluded != PADDING).any():
        passages += 1
    deepest = min(len(first), max(passages, _DEEPEST))
    while True:
        ranked = search(min(passages, len(first)))
        documents, best = _by_document(ranked, first, excluded)
        is_document = documents.documents[:, :depth] != PADDING
        complete = is_document.sum(axis=1) == depth
        exhausted = (ranked.documents[:, -1:] == PADDING).any(axis=1)
        if passages >= deepest or (complete | exhausted).all():
            return documents.top(depth), best[:, :depth]
        passages = min(2 * passages, deepest)


def _by_document(
    ranked: Ranked,
    first: Int32s,
    excluded: Int32s | None,
) -> tuple[Ranked, Int32s]:
    """Return each document at the place of its best passage, and these passages, padding last."""
    documents = np.where(ranked.documents == PADDING, PADDING, first[ranked.documents])
    if excluded is not None:
        documents = without(documents, excluded[:, None])
    documents = repeats_blanked(documents)
    order = np.argsort(documents == PADDING, kind="stable")
    documents = in_rows(documents, order)
    scores = in_rows(ranked.scores, order)
    passages = in_rows(ranked.documents, order)
    padding = documents == PADDING
    scores = np.where(padding, 0, scores).astype(np.float32)
    return Ranked(documents, scores), np.where(padding, PADDING, passages)


def _passages_a_document(first: Int32s) -> int:
    """Return how many passages to ask for in the place of a document: the mean, 5 at most."""
    documents = len(np.unique(first[first != PADDING]))
    return min(-(-len(first) // max(documents, 1)), _MOST_PASSAGES)


# By the name of the part.
Lists: TypeAlias = Mapping[str, Ranked]
# What scores of a part are divided by to be compared: of BM25, whose scores grow with the terms of
# the query, the standard deviation of each query's scores over all documents, [Q]; of a retriever
# one number for all queries.
Spreads: TypeAlias = Mapping[str, NDArray[np.floating[Any]] | float]


class Fused(NamedTuple):
    """Ranked lists of a hybrid, with what each part said.

    Attributes
    ----------
    documents, scores
        As in :class:`Ranked`; -1 and 0 in padding.
    part_ranks, part_scores
        By part, float32 [Q, k] of the same documents; NaN where the part does not list the
        document.
    """

    documents: Int32s
    scores: Float32s
    part_ranks: dict[str, Float32s]
    part_scores: dict[str, Float32s]


def fuse(
    lists: Lists,
    k: int,
    spreads: Spreads | None = None,
    method: Method = "convex",
    weights: Mapping[str, float] | None = None,
) -> Fused:
    """Return the best k documents of all lists together.

    Parameters
    ----------
    lists
        Of each part for the same Q queries, of any depth.
    k
        Documents per query in the result, at least 1; fewer where all lists together are shorter.
    spreads
        See :data:`Spreads`. None: scores are taken as they are.
    method
        ``convex``: the sum of weight · score / spread over the parts, where a document that a part
        does not list counts as the last of its list; where it shares no term with the query, as
        when the list of BM25 or of a sparse retriever is not full, it has 0. ``rrf``: reciprocal
        rank fusion, the sum of 1 / (60 + rank) (Cormack et al. 2009).
    weights
        Of the parts, each at least 0; unused by ``rrf``. None: all count the same.

    Returns
    -------
    Fused
        Best first; documents of equal score stand in the order of their reciprocal ranks, then of
        the corpus.

    Examples
    --------
    >>> bm25 = Ranked(np.array([[3, 1, 7]], np.int32), np.array([[9.0, 4.0, 2.0]], np.float32))
    >>> dense = Ranked(np.array([[1, 5, 3]], np.int32), np.array([[0.8, 0.5, 0.4]], np.float32))
    >>> fused = fuse({"bm25": bm25, "dense": dense}, 2, {"bm25": np.array([2.0]), "dense": 0.1})
    >>> fused.documents.tolist()
    [[1, 3]]
    >>> fused.part_ranks["bm25"].tolist(), fused.part_ranks["dense"].tolist()
    ([[2.0, 1.0]], [[1.0, 3.0]])
    """
    union = aligned(lists)
    part_weights = weights or equal(lists)
    if method == "rrf":
        scores = fused_rank(*union.part_ranks.values())
    else:
        part_scores = comparable(union, lists, spreads or {})
        weights_in_order = [part_weights[name] for name in lists]
        scores = mixed(weights_in_order, [*part_scores.values()])
    scores = np.where(union.documents == PADDING, -np.inf, scores)
    order = np.argsort(-scores, kind="stable")[:, :k]
    best = _taken(union._replace(scores=scores), order)
    scores = np.where(best.documents == PADDING, 0, best.scores)
    return best._replace(scores=scores.astype(np.float32))


def alone(lists: Lists, part: str, k: int) -> Fused:
    """Return the best k documents of one list, with what every list says of them.

    Examples
    --------
    >>> bm25 = Ranked(np.array([[3, 1]], np.int32), np.array([[9.0, 4.0]], np.float32))
    >>> dense = Ranked(np.array([[1, 5]], np.int32), np.array([[0.75, 0.5]], np.float32))
    >>> ranking = alone({"bm25": bm25, "dense": dense}, "bm25", 5)
    >>> ranking.documents.tolist(), ranking.part_ranks["dense"].tolist()
    ([[3, 1]], [[nan, 1.0]])
    """
    union = aligned(lists)
    rank = np.nan_to_num(union.part_ranks[part], nan=np.inf)
    scores = np.nan_to_num(union.part_scores[part], nan=0.0)
    width = min(k, lists[part].documents.shape[1])
    order = np.argsort(rank, kind="stable")[:, :width]
    best = _taken(union._replace(scores=scores), order)
    is_listed = np.isfinite(best.part_ranks[part])

    def of_listed(values: dict[str, Float32s]) -> dict[str, Float32s]:
        result = {}
        for name, array in values.items():
            result[name] = np.where(is_listed, array, np.nan)
        return result

    documents = np.where(is_listed, best.documents, PADDING).astype(np.int32)
    return Fused(documents, best.scores, of_listed(best.part_ranks), of_listed(best.part_scores))


def mixed(weights: Sequence[float], parts: Sequence[Float32s]) -> Float32s:
    """Return the weighted sum of scores that are comparable, of arrays of one shape."""
    products = (weight * values for weight, values in zip(weights, parts, strict=True))
    return sum(products, np.zeros_like(parts[0]))


def equal(parts: Mapping[str, Any]) -> dict[str, float]:
    """Return the weights that let all parts count the same.

    Examples
    --------
    >>> equal({"bm25": 0, "dense": 0})
    {'bm25': 0.5, 'dense': 0.5}
    """
    return dict.fromkeys(parts, 1 / len(parts))


def aligned(lists: Lists) -> Fused:
    """Return all documents of the lists with the scores and ranks by each; fused scores are 0.

    They stand in the order of their reciprocal ranks, then of the corpus; a stable sort keeps it
    between equal scores.
    """
    documents = np.concatenate([part.documents for part in lists.values()], axis=1)
    (union,) = compacted(np.sort(repeats_blanked(documents)))
    size = int(documents.max(initial=0)) + 2
    row_start = np.arange(len(union))[:, None] * size
    keys = row_start + np.where(union == PADDING, size - 1, union)
    ranks = dict[str, Float32s]()
    scores = dict[str, Float32s]()
    for name, part in lists.items():
        row, rank = np.nonzero(part.documents != PADDING)
        part_keys = row * size + part.documents[row, rank]
        place = np.searchsorted(keys.ravel(), part_keys)
        ranks[name] = np.full(union.shape, np.nan, np.float32)
        scores[name] = np.full(union.shape, np.nan, np.float32)
        np.put(ranks[name], place, rank + 1)
        np.put(scores[name], place, part.scores[row, rank])
    order = np.argsort(-fused_rank(*ranks.values()), kind="stable")
    no_scores = np.zeros(union.shape, np.float32)
    return _taken(Fused(union, no_scores, ranks, scores), order)


def comparable(
    union: Fused,
    lists: Lists,
    spreads: Spreads,
) -> dict[str, Float32s]:
    """Return the scores of aligned documents by each part, in units of its spread, [Q, M] each.

    Where the spread is 0, as with a query that shares no term with any document, all are 0.
    """
    scaled = {}
    for name, part in lists.items():
        # What a list of terms does not hold shares none where there was room for it. Padding of
        # other lists was never scored.
        padding = 0 if name in _OF_TERMS else np.inf
        listed = np.where(part.documents == PADDING, padding, part.scores)
        lowest = listed.min(axis=1, initial=np.inf, keepdims=True)
        lowest[~np.isfinite(lowest)] = 0
        scores = union.part_scores[name]
        filled = np.where(np.isnan(scores), lowest, scores)
        spread = np.asarray(spreads.get(name, 1.0), np.float32).reshape(-1, 1)
        scaled[name] = np.zeros(filled.shape, np.float32)
        np.divide(filled, spread, out=scaled[name], where=spread > 0)
    return scaled


def _taken(ranking: Fused, order: NDArray[np.intp]) -> Fused:
    ranks, scores = (
        {name: in_rows(values, order) for name, values in by_part.items()}
        for by_part in (ranking.part_ranks, ranking.part_scores)
    )
    documents = in_rows(ranking.documents, order)
    fused_scores = in_rows(ranking.scores, order)
    return Fused(documents, fused_scores, ranks, scores)
