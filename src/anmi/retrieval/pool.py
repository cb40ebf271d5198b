"""Candidates of all sources are merged into one row per query, without what is related to its positives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi import seeds
from anmi.candidates import PADDING, SOURCES
from anmi.corpus.related import copies
from anmi.ragged import Bools, Float32s, Int32s, Int64s, in_rows

RECIPROCAL_RANK_CONSTANT = 60.0
# Up to so many documents, comparing with one after the other costs less than sorting.
_FEW: Final = 16


class Positives:
    """The known positives of queries, padded only for the queries that are asked for.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": ["a", "b", "b"], "document_id": ["x", "x", "y"], "relevance": [1, 1, 1]})
    >>> positives = Positives(qrels, {"x": 0, "y": 1})
    >>> positives.of(["a", "b"]).tolist(), positives.counts(["c", "b"]).tolist()
    ([[0, -1], [0, 1]], [0, 2])
    """

    def __init__(self, qrels: pd.DataFrame, document_index: Mapping[str, int]) -> None:
        places = qrels.document_id.map(document_index)
        is_positive = (qrels.relevance > 0) & places.notna()
        codes, names = pd.factorize(qrels.query_id[is_positive])
        order = np.argsort(codes, kind="stable")
        documents = places[is_positive].to_numpy(np.int32)[order]
        starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
        # Queries without a positive have the last row.
        rows = np.ones(len(documents)), documents, np.append(starts, len(documents))
        self._rows = sparse.csr_matrix(rows, (len(starts), len(document_index)))
        self._names = pd.Index(names)

    def _of(self, query_ids: Sequence[str]) -> sparse.csr_matrix:
        return self._rows[self._names.get_indexer(pd.Series(list(query_ids), dtype=object))]

    def counts(self, query_ids: Sequence[str]) -> Int64s:
        """Return how many each query has."""
        return np.diff(self._of(query_ids).indptr)

    def of(self, query_ids: Sequence[str]) -> Int32s:
        """Return those of Q queries, int32 [Q, P], padded with -1, in the order of the qrels; P is at least 1."""
        return _listed(self._of(query_ids))


def _listed(rows: sparse.csr_matrix) -> Int32s:
    """Return the columns that each row of a matrix holds, int32 [Q, K], padded with -1; K is at least 1."""
    counts = np.diff(rows.indptr)
    held = np.arange(max(int(counts.max(initial=0)), 1)) < counts[:, None]
    result = np.full(held.shape, PADDING, np.int32)
    result[held] = rows.indices
    return result


# Passages of a document whose score is at least this share of the best one's are labelled beside
# it.
_NEAR: Final = 0.9


def best_passages(
    positives: Int32s,
    document: Int32s,
    bm25: Float32s | None,
    dense: Float32s | None,
) -> Int32s:
    """Return the positives with only the best passages of each document that is one as a whole, int32 [Q, up to P].

    A passage's score is the mean of its scores by BM25 and by the encoder, each as a share of the
    best one's of the document. Those near the best stay beside it, half of a document's passages at
    most. Where only some passages of a document are positives, somebody chose them, and they stay.

    Parameters
    ----------
    positives
        int32 [Q, P], padded with -1.
    document
        Number of the document that each passage was cut from, int32 [N]; -1 where nothing was cut.
    bm25, dense
        Scores of the positives, float32 [Q, P]; None where a source is not asked.

    Examples
    --------
    >>> scores = np.array([[1, 4, 3, 9]], np.float32)
    >>> best_passages(np.array([[0, 1, 2, 3]], np.int32), np.array([7, 7, 7, -1], np.int32), scores, None).tolist()
    [[1, 3]]
    >>> best_passages(np.array([[0, 2, 3]], np.int32), np.array([7, 7, 7, -1], np.int32), scores[:, 1:], None).tolist()
    [[0, 2, 3]]
    """
    row, slot = np.nonzero((positives != PADDING) & (document[positives] >= 0))
    parts = pd.DataFrame({"row": row, "document": document[positives[row, slot]], "score": 0.0})
    for values in (bm25, dense):
        if values is not None:
            score = pd.Series(np.maximum(np.nan_to_num(values[row, slot]), 0))
            parts["score"] += (
                score / score.groupby([parts.row, parts.document]).transform("max")
            ).fillna(0)
    of = parts.groupby(["row", "document"]).score
    is_best = (parts.score >= _NEAR * of.transform("max")) & (
        of.rank(method="first", ascending=False) <= np.maximum(of.transform("size") // 2, 1)
    )
    # All passages of a document.
    is_best |= of.transform("size") < np.bincount(document[document >= 0])[parts.document]
    left = positives.copy()
    left[row[~is_best], slot[~is_best]] = PADDING
    return compacted(left)[0]


def some_of(seed: int, query_ids: list[str], positives: Int32s, most: int) -> Int32s:
    """Return at most so many positives of each query, drawn by its own stream, in the order that they had.

    Of one it is the first, as the ANMI 2.0 notebook has it.

    Examples
    --------
    >>> some_of(1, ["a", "b"], np.array([[3, 5, 7], [4, -1, -1]], np.int32), 2).tolist()
    [[5, 7], [4, -1]]
    """
    if positives.shape[1] <= most or most == 1:
        return positives[:, :most]
    draws = np.where(
        positives == PADDING, 2.0, seeds.uniform(seed, "positives", query_ids, positives)
    )
    drawn = np.argsort(np.argsort(draws, kind="stable")) < most
    return compacted(np.where(drawn, positives, np.int32(PADDING)))[0]


def median_first(positives: Int32s, values: Float32s) -> Int64s:
    """Return the order that puts the positive of the median value first and leaves the others, int64 [Q, P].

    Of an even number it is the lower of the two in the middle, and of equal ones that of the
    smaller index.

    Examples
    --------
    >>> median_first(np.array([[4, 5, 6, 7]], np.int32), np.array([[0.9, 0.3, 0.5, np.nan]], np.float32)).tolist()
    [[2, 0, 1, 3]]
    """
    is_known = np.isfinite(values)
    ranked = np.lexsort((positives, np.where(is_known, values, np.inf)))
    middle = np.maximum(is_known.sum(axis=1, keepdims=True) - 1, 0) // 2
    place = in_rows(ranked, middle)
    return np.argsort(np.arange(positives.shape[1]) != place, kind="stable")


def own_documents(queries: pd.DataFrame, document_index: Mapping[str, int]) -> Int32s:
    """Return the document that each query is itself or has the text of, int32 [Q], -1 where there is none.

    Parameters
    ----------
    queries
        ``same_as`` as made by ingestion, Q rows; without that column, no query is a document.
    document_index
        By document id.

    Examples
    --------
    >>> own_documents(pd.DataFrame({"same_as": ["", "y"]}), {"x": 0, "y": 1}).tolist()
    [-1, 1]
    """
    names = queries["same_as"] if "same_as" in queries else [""] * len(queries)
    return np.array([document_index.get(name, PADDING) for name in names], np.int32)


def without(documents: Int32s, excluded: Int32s) -> Int32s:
    """Blank the excluded documents of each row: int32 [Q, M] with -1 where a document is in ``excluded`` [Q, P]."""
    result = documents.copy()
    if excluded.shape[1] > _FEW:
        size = int(max(documents.max(initial=0), excluded.max(initial=0))) + 1
        row = np.arange(len(documents), dtype=np.int64)[:, None] * size
        result[
            np.isin(row + documents, (row + excluded)[excluded != PADDING]) & (documents != PADDING)
        ] = PADDING
        return result
    for column in excluded.T:
        result[(documents == column[:, None]) & (column != PADDING)[:, None]] = PADDING
    return result


def compacted(documents: Int32s, *others: NDArray[Any]) -> list[NDArray[Any]]:
    """Move padding to the end of each row, keeping the order of the rest, and cut columns that are all padding."""
    order = np.argsort(documents == PADDING, kind="stable")
    width = int((documents != PADDING).sum(axis=1).max(initial=0))
    return [in_rows(values, order)[:, :width] for values in (documents, *others)]


def merged(
    *lists: tuple[Int32s, Float32s, str],
) -> tuple[Int32s, NDArray[np.uint8], Float32s]:
    """Merge the candidates of several sources; a document in some of them carries the bits of all of these.

    Parameters
    ----------
    lists
        Documents, int32 [Q, A], padded with -1 and without repeats within a row; a value of each,
        float32 [Q, A], alike in all lists; and their source, one of
        :data:`anmi.candidates.SOURCES`.

    Returns
    -------
    documents, source, values
        [Q, up to the sum of A], in order of document index; -1, 0 and NaN in padding.

    Examples
    --------
    >>> a, b = np.array([[3, 1]], np.int32), np.array([[1, 2]], np.int32)
    >>> [x.tolist() for x in merged((a, a.astype(np.float32), "bm25"), (b, b.astype(np.float32), "dense"))]
    [[[1, 2, 3]], [[3, 2, 1]], [[1.0, 2.0, 3.0]]]
    """
    documents = np.concatenate([values_of_list for values_of_list, _, _ in lists], axis=1)
    bits = np.concatenate(
        [
            np.full(values_of_list.shape, SOURCES[name], np.uint8)
            for values_of_list, _, name in lists
        ],
        axis=1,
    )
    values = np.concatenate([values_of_list for _, values_of_list, _ in lists], axis=1)
    order = np.argsort(documents, kind="stable")
    documents, bits, values = (
        in_rows(values_of_list, order) for values_of_list in (documents, bits, values)
    )
    same = documents[:, 1:] == documents[:, :-1]
    for _ in lists[1:]:
        bits[:, :-1] |= np.where(same, bits[:, 1:], 0).astype(np.uint8)
    documents[:, 1:][same] = PADDING
    documents, bits, values = compacted(documents, bits, values)
    bits[documents == PADDING] = 0
    values[documents == PADDING] = np.nan
    return documents, bits, values


def known_from(scores: Float32s, kept: Bools, depth: int, ranks: int) -> Float32s:
    """Return the score from which on the ranks of a query's documents follow from its list, float32 [Q, 1].

    That is the score of the last candidate found, or of rank ``ranks`` if it lies deeper. It says
    nothing of how long the list is beyond, which may go by the other queries of a shard.

    Parameters
    ----------
    scores
        Of the lists, best first, float32 [Q, K]; 0 where a list of terms ends.
    kept
        Which of them may be candidates, [Q, K].
    depth
        Candidates per query; K is at least this and the number of those that may not.
    ranks
        Ranks that are to be known in any case; K is at least this, or the whole corpus.

    Examples
    --------
    >>> scores, kept = np.array([[8, 6, 4, 2]], np.float32), np.array([[False, True, True, True]])
    >>> known_from(scores, kept, depth=2, ranks=1).tolist(), known_from(scores, kept, 4, 1).tolist()
    ([[4.0]], [[-inf]])
    """
    if ranks > scores.shape[1]:
        return np.full((len(scores), 1), -np.inf, np.float32)
    count = np.cumsum(kept, axis=1)
    last = np.where(kept & (count <= depth), np.arange(scores.shape[1]), -1).max(axis=1, initial=-1)
    place = np.maximum(last, ranks - 1)[:, None]
    if not scores.shape[1]:
        return np.full((len(scores), 1), np.inf, np.float32)
    lowest = np.where(place < 0, np.inf, in_rows(scores, np.maximum(place, 0)))
    # Where not even so many were found, nothing lies beyond the list.
    return np.where(count[:, -1:] < depth, -np.inf, lowest).astype(np.float32)


def listed_ranks(scores: Float32s, listed: Float32s, least: Float32s) -> Float32s:
    """Return 1 + the number of higher scores in each query's list; NaN below ``least`` and where there is no score.

    Parameters
    ----------
    scores
        Of any documents, float32 [Q, M].
    listed
        Of the list, falling, float32 [Q, K].
    least
        See :func:`known_from`, float32 [Q, 1].

    Examples
    --------
    >>> listed_ranks(*(np.array([x], np.float32) for x in ([0.8, 0.7, 0.5], [0.9, 0.7, 0.6], [0.6]))).tolist()
    [[2.0, 2.0, nan]]
    """
    pairs = zip(-listed, -scores, strict=True)
    above = np.array([np.searchsorted(falling, values) for falling, values in pairs]).reshape(
        scores.shape
    )
    return np.where(scores >= least, above + 1, np.nan).astype(np.float32)


def fused_rank(*ranks: Float32s) -> Float32s:
    """Reciprocal-rank fusion: Σ 1 / (60 + rank) over the sources; an unknown rank counts 0 (Cormack et al. 2009)."""
    shares = [np.nan_to_num(1.0 / (RECIPROCAL_RANK_CONSTANT + rank)) for rank in ranks]
    return np.sum(shares, axis=0).astype(np.float32)


def duplicate_groups(document_ids: list[str], related: pd.DataFrame) -> Int32s:
    """Return for every document the index of the first one with the same text, int32 [N].

    Parameters
    ----------
    document_ids
        In corpus order.
    related
        ``document_id, other_id, kind``; see :func:`anmi.corpus.related.find_related`.

    Examples
    --------
    >>> table = pd.DataFrame({"document_id": ["c"], "other_id": ["a"], "kind": ["copy"]})
    >>> duplicate_groups(["a", "b", "c"], table).tolist()
    [0, 1, 0]
    """
    position = pd.Series(np.arange(len(document_ids), dtype=np.int32), index=document_ids)
    group = np.arange(len(document_ids), dtype=np.int32)
    if same := copies(related):
        group[position.loc[list(same)]] = position.loc[list(same.values())].to_numpy()
    return group


_STEP: Final = "dense/random"
# Up to so many documents per wanted one, numbering all of them costs less than drawing until enough
# are different.
_SMALL: Final = 16


def draw(
    seed: int,
    query_ids: Sequence[str] | NDArray[np.str_],
    excluded: Int32s,
    documents: int,
    count: int,
) -> Int32s:
    """Draw documents uniformly without replacement for every query.

    A query's draw depends on the seed, its identifier, its excluded documents and the size of the
    corpus only. Small corpora are put in random order; from large ones documents are drawn until
    ``count`` different ones remain, so that memory does not grow with the corpus.

    Parameters
    ----------
    seed
        Of the run.
    query_ids
        Q identifiers.
    excluded
        Documents that are never drawn, int32 [Q, P], padded with -1.
    documents
        Number of documents in the corpus, N.
    count
        Documents per query.

    Returns
    -------
    numpy.ndarray
        int32 [Q, up to ``count``], padded with -1 where fewer documents are left.

    Examples
    --------
    >>> sorted(draw(1, ["q"], np.array([[1]], np.int32), documents=4, count=9)[0].tolist())
    [0, 2, 3]
    """
    if count == 0 or len(query_ids) == 0:
        return np.zeros((len(query_ids), 0), np.int32)
    if documents <= _SMALL * count:
        everything = np.tile(np.arange(documents, dtype=np.int32), (len(query_ids), 1))
        order = np.argsort(seeds.uniform(seed, _STEP, query_ids, everything)).astype(np.int32)
        return compacted(without(order, excluded))[0][:, :count]
    needed = np.minimum(count, documents - (repeats_blanked(excluded) != PADDING).sum(axis=1))
    width = count + excluded.shape[1] + _SMALL
    while True:
        slots = np.tile(np.arange(width, dtype=np.int32), (len(query_ids), 1))
        # More draws only go on from the earlier ones, so rows that need them change nothing for the
        # others.
        drawn = (seeds.uniform(seed, _STEP, query_ids, slots) * documents).astype(np.int32)
        documents_drawn = compacted(without(repeats_blanked(drawn), excluded))[0][:, :count]
        if ((documents_drawn != PADDING).sum(axis=1) >= needed).all():
            return documents_drawn
        width *= 2


def repeats_blanked(documents: Int32s) -> Int32s:
    """Blank the repeats in each row."""
    order = np.argsort(documents, kind="stable")
    ascending = in_rows(documents, order)
    ascending[:, 1:][ascending[:, 1:] == ascending[:, :-1]] = PADDING
    result = np.empty_like(documents)
    np.put_along_axis(result, order, ascending, axis=1)
    return result


# Values of the column `related` of a block of candidates; a near-duplicate that is a sibling too
# counts as the former.
KINDS: Final = {"near": 1, "sibling": 2}


class RelatedDocuments:
    """Near-duplicates and siblings of every document, with all documents of the same text counted as one.

    Parameters
    ----------
    group
        For every document the index of the first one with the same text, int32 [N].
    near
        Which groups are near-duplicates of which, sparse [N, N].
    family
        For every document the index of the first one of the same parent, int32 [N].

    Examples
    --------
    >>> table = pd.DataFrame({"document_id": ["a", "d"], "other_id": ["c", "c"], "kind": ["near", "copy"]})
    >>> related = RelatedDocuments.from_table(table, ["a", "b", "c", "d"])
    >>> related.excluded(np.array([[0, -1], [1, 3]], np.int32)).tolist()
    [[0, 2, 3, -1], [0, 1, 2, 3]]
    >>> related.kinds(np.array([[0]], np.int32), np.array([[1, 3, -1]], np.int32)).tolist()
    [[0, 1, 0]]
    """

    def __init__(self, group: Int32s, near: sparse.csr_matrix, family: Int32s) -> None:
        self._group = group
        self._near = near
        each = np.arange(len(group))
        self._having = _matrix(group, each, len(group))
        self._families = self._having @ _matrix(each, family, len(group))
        self._in_family = self._families.T.tocsr()
        # By so many ways a text comes to itself.
        self._to_itself = sparse.csr_matrix(self._families.power(2).sum(axis=1).T)

    @staticmethod
    def unrelated(documents: int) -> RelatedDocuments:
        """Return the lookup of N documents of which none is related to another."""
        each = np.arange(documents, dtype=np.int32)
        return RelatedDocuments(each, _matrix(each[:0], each[:0], documents), each)

    @staticmethod
    def from_table(table: pd.DataFrame, document_ids: list[str]) -> RelatedDocuments:
        """Build the lookup from what ingestion made.

        Parameters
        ----------
        table
            ``document_id, other_id, kind``, each near pair in one direction, siblings with the
            first of them; see :func:`anmi.corpus.related.find_related`.
        document_ids
            In corpus order.
        """
        group = duplicate_groups(document_ids, table)
        count = len(group)
        family = np.arange(len(group), dtype=np.int32)
        table = table[table["kind"].isin(KINDS)]
        position = (
            pd.Series(np.arange(count), index=document_ids)
            if len(table)
            else pd.Series(dtype="int64")
        )
        place = [
            position.loc[table[name]].to_numpy(np.int64) for name in ("document_id", "other_id")
        ]
        near = (table["kind"] == "near").to_numpy()
        family[place[1][~near]] = place[0][~near]
        first, second = (group[rows[near]].astype(np.int64) for rows in place)
        left = np.concatenate([first, second])
        right = np.concatenate([second, first])
        return RelatedDocuments(
            group, _matrix(left[left != right], right[left != right], count), family
        )

    def __len__(self) -> int:
        return len(self._group)

    @property
    def first_of_text(self) -> Int32s:
        """The first document with the text of each document, int32 [N]."""
        return self._group

    def same_text(self, documents: Int32s) -> Int32s:
        """Return the documents of each row and all of the same text: int32 [Q, P'] from [Q, P], padded with -1.

        Examples
        --------
        >>> table = pd.DataFrame({"document_id": ["c"], "other_id": ["a"], "kind": ["copy"]})
        >>> RelatedDocuments.from_table(table, ["a", "b", "c"]).same_text(np.array([[2], [1]], np.int32)).tolist()
        [[0, 2], [1, -1]]
        """
        return _listed((self._texts(documents) @ self._having).sorted_indices())

    def kinds(self, positives: Int32s, documents: Int32s) -> NDArray[np.uint8]:
        """Say of each document whether it is related to a positive of its row.

        Parameters
        ----------
        positives, documents
            int32 [Q, P] and [Q, M], padded with -1.

        Returns
        -------
        numpy.ndarray
            uint8 [Q, M]: 0 none, 1 near-duplicate, 2 sibling of a positive (1 where both); 0 in
            padding.
        """
        row = np.arange(len(documents), dtype=np.int64)[:, None]
        codes = np.where(documents == PADDING, -1, row * len(self) + self._group[documents])
        related = (matrix.tocoo() for matrix in self._of_rows(positives))
        near, sibling = (
            np.isin(codes, matrix.row.astype(np.int64) * len(self) + matrix.col)
            for matrix in related
        )
        return np.where(near, KINDS["near"], np.where(sibling, KINDS["sibling"], 0)).astype(
            np.uint8
        )

    def excluded(self, positives: Int32s, own: Int32s | None = None) -> Int32s:
        """Return what must not be a negative in each row: positives, what is related to them, and copies of these.

        Parameters
        ----------
        positives
            int32 [Q, P], padded with -1.
        own
            Documents that the query itself is, int32 [Q, S], padded with -1; they and those of the
            same text are excluded as well, and what is related to them is not, since these may be
            what the query asks against.

        Returns
        -------
        numpy.ndarray
            int32 [Q, K], each row in order of document index and padded with -1; K is at least 1.
        """
        same = positives if own is None else np.concatenate([positives, own], axis=1)
        near, sibling = self._of_rows(positives)
        return _listed(((near + sibling + self._texts(same)) @ self._having).sorted_indices())

    def _texts(self, documents: Int32s) -> sparse.csr_matrix:
        """Return which groups the documents of each row belong to, [Q, N], 1 each."""
        row, slot = np.nonzero(documents != PADDING)
        groups = _matrix(row, self._group[documents[row, slot]], len(self), len(documents))
        groups.data[:] = 1
        return groups

    def _of_rows(self, positives: Int32s) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        """Return which groups are near-duplicates of a positive of the row, and which are siblings, [Q, N]."""
        texts = self._texts(positives)
        # From each text to the parents of its documents, their parts and the texts of these; other
        # ones than itself.
        siblings = texts @ self._families @ self._in_family - texts.multiply(self._to_itself)
        return texts @ self._near, siblings


def _matrix(
    rows: NDArray[Any], columns: NDArray[Any], width: int, height: int | None = None
) -> sparse.csr_matrix:
    shape = (width if height is None else height, width)
    return sparse.csr_matrix((np.ones(len(rows), np.int64), (rows, columns)), shape)
