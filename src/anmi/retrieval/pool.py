"""Candidates of all sources are merged, a row per query, without what is related to positives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi import seeds
from anmi.candidates import PADDING, SOURCES
from anmi.corpus.related import COPY
from anmi.ragged import Bools, Float32s, Int32s, Int64s, in_rows

Ids = Sequence[str] | NDArray[np.str_]

RECIPROCAL_RANK_CONSTANT = 60.0
# Up to so many documents, comparing with one after the other costs less than sorting.
_FEW: Final = 16


class Positives:
    """The known positives of queries, padded only for the queries that are asked for.

    Examples
    --------
    >>> pairs = [("a", "x"), ("b", "x"), ("b", "y")]
    >>> qrels = pd.DataFrame(pairs, columns=["query_id", "document_id"]).assign(relevance=1)
    >>> positives = Positives(qrels, {"x": 0, "y": 1})
    >>> positives.of(["a", "b"]).tolist(), positives.counts(["c", "b"]).tolist()
    ([[0, -1], [0, 1]], [0, 2])
    """

    def __init__(self, qrels: pd.DataFrame, document_index: Mapping[str, int]) -> None:
        documents = qrels.document_id.map(document_index)
        is_positive = (qrels.relevance > 0) & documents.notna()
        codes, query_ids = pd.factorize(qrels.query_id[is_positive])
        order = np.argsort(codes, kind="stable")
        columns = documents[is_positive].to_numpy(np.int32)[order]
        starts = np.searchsorted(codes[order], np.arange(len(query_ids) + 1))
        # Queries without a positive have the last row.
        ones = np.ones(len(columns))
        row_starts = np.append(starts, len(columns))
        arrays = (ones, columns, row_starts)
        self._rows = sparse.csr_matrix(arrays, (len(starts), len(document_index)))
        self._query_ids = pd.Index(query_ids)

    def _of(self, query_ids: Ids) -> sparse.csr_matrix:
        wanted_ids = pd.Series(list(query_ids), dtype=object)
        rows = self._query_ids.get_indexer(wanted_ids)
        return self._rows[rows]

    def counts(self, query_ids: Ids) -> Int64s:
        """Return how many each query has."""
        return np.diff(self._of(query_ids).indptr)

    def of(self, query_ids: Ids) -> Int32s:
        """Return those of Q queries in the order of the qrels, int32 [Q, P ≥ 1], padded with -1."""
        return _listed(self._of(query_ids))


def _listed(matrix: sparse.csr_matrix) -> Int32s:
    """Return the columns that each row of a matrix holds, int32 [Q, K ≥ 1], padded with -1."""
    counts = np.diff(matrix.indptr)
    is_filled = np.arange(counts.max(initial=1)) < counts[:, None]
    columns = np.full(is_filled.shape, PADDING, np.int32)
    columns[is_filled] = matrix.indices
    return columns


# Passages of a document whose score is at least this share of the best one's are labelled beside
# it.
_NEAR: Final = 0.9


def best_passages(
    positives: Int32s,
    document: Int32s,
    bm25: Float32s | None,
    dense: Float32s | None,
) -> Int32s:
    """Keep all positives, but of documents with only positive passages no more than the best.

    A passage's score is the mean of its scores by BM25 and by the encoder, each as a share of the
    best one's of the document. Passages near the best stay beside it, up to half of the document's.
    Where only some passages of a document are positives, somebody chose them, and they stay. The
    result is int32 [Q, up to P].

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
    >>> document = np.array([7, 7, 7, -1], np.int32)
    >>> best_passages(np.array([[0, 1, 2, 3]], np.int32), document, scores, None).tolist()
    [[1, 3]]
    >>> best_passages(np.array([[0, 2, 3]], np.int32), document, scores[:, 1:], None).tolist()
    [[0, 2, 3]]
    """
    is_passage = (positives != PADDING) & (document[positives] >= 0)
    row, slot = np.nonzero(is_passage)
    passages = pd.DataFrame(
        {
            "row": row,
            "document": document[positives[row, slot]],
            "score": 0.0,
        }
    )
    for scores in (bm25, dense):
        if scores is not None:
            passages["part"] = np.maximum(np.nan_to_num(scores[row, slot]), 0)
            best = passages.groupby(["row", "document"]).part.transform("max")
            passages["score"] += (passages.part / best).fillna(0)
    by_document = passages.groupby(["row", "document"]).score
    size = by_document.transform("size")
    is_near = passages.score >= _NEAR * by_document.transform("max")
    rank = by_document.rank(method="first", ascending=False)
    is_in_better_half = rank <= np.maximum(size // 2, 1)
    passage_counts = np.bincount(document[document >= 0])
    is_part_of_document = size < passage_counts[passages.document]
    is_best = (is_near & is_in_better_half) | is_part_of_document
    result = positives.copy()
    result[row[~is_best], slot[~is_best]] = PADDING
    return compacted(result)[0]


def some_of(
    seed: int,
    query_ids: list[str],
    positives: Int32s,
    count: int,
) -> Int32s:
    """Return up to ``count`` positives of each query, drawn by its own stream, in their order.

    With ``count=1`` it is the first, as the ANMI 2.0 notebook has it.

    Examples
    --------
    >>> some_of(1, ["a", "b"], np.array([[3, 5, 7], [4, -1, -1]], np.int32), 2).tolist()
    [[5, 7], [4, -1]]
    """
    if positives.shape[1] <= count or count == 1:
        return positives[:, :count]
    draws = seeds.uniform(seed, "positives", query_ids, positives)
    draws = np.where(positives == PADDING, 2.0, draws)
    order = np.argsort(draws, kind="stable")
    is_drawn = np.argsort(order) < count
    sample = np.where(is_drawn, positives, np.int32(PADDING))
    return compacted(sample)[0]


def median_first(positives: Int32s, scores: Float32s) -> Int64s:
    """Return the order that puts the positive of the median score before the others, int64 [Q, P].

    Of an even number it is the lower of the two in the middle, and of equal ones that of the
    smaller index.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.3, 0.5, np.nan]], np.float32)
    >>> median_first(np.array([[4, 5, 6, 7]], np.int32), scores).tolist()
    [[2, 0, 1, 3]]
    """
    is_scored = np.isfinite(scores)
    keys = np.where(is_scored, scores, np.inf)
    ascending = np.lexsort((positives, keys))
    last = is_scored.sum(axis=1, keepdims=True) - 1
    middle = np.maximum(last, 0) // 2
    median = in_rows(ascending, middle)
    return np.argsort(np.arange(positives.shape[1]) != median, kind="stable")


def own_documents(queries: pd.DataFrame, document_index: Mapping[str, int]) -> Int32s:
    """Return the document that each query is or has the text of, int32 [Q], -1 for none.

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
    if "same_as" not in queries:
        return np.full(len(queries), PADDING, np.int32)
    documents = [document_index.get(document_id, PADDING) for document_id in queries["same_as"]]
    return np.array(documents, np.int32)


def without(documents: Int32s, excluded: Int32s) -> Int32s:
    """Return int32 [Q, M] with -1 in the place of what is in the row of ``excluded`` [Q, P]."""
    result = documents.copy()
    if excluded.shape[1] > _FEW:
        highest = max(documents.max(initial=0), excluded.max(initial=0))
        row_start = np.arange(len(documents), dtype=np.int64)[:, None] * (int(highest) + 1)
        excluded_codes = (row_start + excluded)[excluded != PADDING]
        is_excluded = np.isin(row_start + documents, excluded_codes)
        result[is_excluded & (documents != PADDING)] = PADDING
        return result
    for excluded_column in excluded.T:
        column = excluded_column[:, None]
        is_excluded = (documents == column) & (column != PADDING)
        result[is_excluded] = PADDING
    return result


def compacted(documents: Int32s, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    """Move padding to the end of each row, and cut columns that are all padding."""
    is_padding = documents == PADDING
    order = np.argsort(is_padding, kind="stable")
    counts = (~is_padding).sum(axis=1)
    width = int(counts.max(initial=0))
    return [in_rows(array, order)[:, :width] for array in (documents, *arrays)]


def merged(
    *lists: tuple[Int32s, Float32s, str],
) -> tuple[Int32s, NDArray[np.uint8], Float32s]:
    """Merge the candidates of several sources; a document of several carries the bits of all.

    Parameters
    ----------
    lists
        Documents, int32 [Q, A], padded with -1 and without repeats within a row; a score of each,
        float32 [Q, A], alike in all lists; and their source, one of
        :data:`anmi.candidates.SOURCES`.

    Returns
    -------
    documents, source, scores
        [Q, up to the sum of A], in order of document index; -1, 0 and NaN in padding.

    Examples
    --------
    >>> lexical = np.array([[3, 1]], np.int32)
    >>> nearest = np.array([[1, 2]], np.int32)
    >>> arrays = merged((lexical, lexical / 2, "bm25"), (nearest, nearest / 2, "dense"))
    >>> [array.tolist() for array in arrays]
    [[[1, 2, 3]], [[3, 2, 1]], [[0.5, 1.0, 1.5]]]
    """
    document_lists, score_lists, names = zip(*lists, strict=True)
    bit_lists = [
        np.full(array.shape, SOURCES[name], np.uint8)
        for array, name in zip(document_lists, names, strict=True)
    ]
    documents = np.concatenate(document_lists, axis=1)
    order = np.argsort(documents, kind="stable")
    documents = in_rows(documents, order)
    source = in_rows(np.concatenate(bit_lists, axis=1), order)
    scores = in_rows(np.concatenate(score_lists, axis=1), order)
    is_repeat = documents[:, 1:] == documents[:, :-1]
    for _ in lists[1:]:
        repeated_bits = np.where(is_repeat, source[:, 1:], 0)
        source[:, :-1] |= repeated_bits.astype(np.uint8)
    documents[:, 1:][is_repeat] = PADDING
    documents, source, scores = compacted(documents, source, scores)
    source[documents == PADDING] = 0
    scores[documents == PADDING] = np.nan
    return documents, source, scores


def lowest_known_score(
    scores: Float32s,
    is_candidate: Bools,
    depth: int,
    ranks: int,
) -> Float32s:
    """Return the lowest score whose rank follows from a query's list, float32 [Q, 1].

    It is the score of the last candidate taken, or of rank ``ranks`` if that lies deeper, so it
    does not depend on the list's length, which the other queries of a shard decide.

    Parameters
    ----------
    scores
        Of the lists, best first, float32 [Q, K]; 0 where a list of terms ends.
    is_candidate
        Which of them may be candidates, [Q, K].
    depth
        Candidates per query; K is at least this and the number of those that may not.
    ranks
        Ranks that are to be known in any case; K is at least this, or the whole corpus.

    Examples
    --------
    >>> scores = np.array([[8, 6, 4, 2]], np.float32)
    >>> lowest_known_score(scores, scores < 8, depth=2, ranks=1).tolist()
    [[4.0]]
    >>> lowest_known_score(scores, scores < 8, depth=4, ranks=1).tolist()
    [[-inf]]
    """
    if ranks > scores.shape[1]:
        return np.full((len(scores), 1), -np.inf, np.float32)
    count = np.cumsum(is_candidate, axis=1)
    is_taken = is_candidate & (count <= depth)
    rank = np.where(is_taken, 1 + np.arange(scores.shape[1]), 0)
    last_rank = np.maximum(rank.max(axis=1, initial=0), ranks)
    by_rank = np.pad(scores, ((0, 0), (1, 0)), constant_values=np.inf)
    lowest = in_rows(by_rank, last_rank[:, None])
    # Where not even so many were found, nothing lies beyond the list.
    is_short = is_candidate.sum(axis=1, keepdims=True) < depth
    return np.where(is_short, -np.inf, lowest).astype(np.float32)


def listed_ranks(scores: Float32s, listed: Float32s, lowest: Float32s) -> Float32s:
    """Return 1 + the number of higher scores in each query's list; NaN below ``lowest``.

    Parameters
    ----------
    scores
        Of any documents, float32 [Q, M]; NaN where there is none.
    listed
        Of the list, falling, float32 [Q, K].
    lowest
        See :func:`lowest_known_score`, float32 [Q, 1].

    Examples
    --------
    >>> listed = np.array([[0.9, 0.7, 0.6]], np.float32)
    >>> scores = np.array([[0.8, 0.7, 0.5]], np.float32)
    >>> listed_ranks(scores, listed, listed[:, -1:]).tolist()
    [[2.0, 2.0, nan]]
    """
    higher = np.empty(scores.shape, np.int64)
    for query in range(len(scores)):
        higher[query] = np.searchsorted(-listed[query], -scores[query])
    ranks = np.where(scores >= lowest, higher + 1, np.nan)
    return ranks.astype(np.float32)


def fused_rank(*ranks: Float32s) -> Float32s:
    """Return Σ 1 / (60 + rank) over the sources; an unknown rank counts 0 (Cormack et al. 2009)."""
    shares = [np.nan_to_num(1.0 / (RECIPROCAL_RANK_CONSTANT + rank)) for rank in ranks]
    return np.sum(shares, axis=0).astype(np.float32)


_STEP: Final = "dense/random"
# Up to so many documents per wanted one, numbering all of them costs less than drawing until enough
# are different.
_SMALL: Final = 16


def draw(
    seed: int,
    query_ids: Ids,
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
        uniform = _uniform(seed, query_ids, documents)
        order = np.argsort(uniform).astype(np.int32)
        return compacted(without(order, excluded))[0][:, :count]
    excluded_counts = (repeats_blanked(excluded) != PADDING).sum(axis=1)
    needed = np.minimum(count, documents - excluded_counts)
    width = count + excluded.shape[1] + _SMALL
    while True:
        # More draws only go on from the earlier ones, so rows that need them change nothing for the
        # others.
        uniform = _uniform(seed, query_ids, width)
        draws = (uniform * documents).astype(np.int32)
        allowed = without(repeats_blanked(draws), excluded)
        sample = compacted(allowed)[0][:, :count]
        drawn_counts = (sample != PADDING).sum(axis=1)
        if (drawn_counts >= needed).all():
            return sample
        width *= 2


def _uniform(seed: int, query_ids: Ids, width: int) -> NDArray[Any]:
    """Return so many numbers in [0, 1) of the stream of each query, [Q, width]."""
    slots = np.tile(np.arange(width, dtype=np.int32), (len(query_ids), 1))
    return seeds.uniform(seed, _STEP, query_ids, slots)


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
    """Near-duplicates and siblings of every document; documents of the same text count as one.

    Parameters
    ----------
    first_of_text
        For every document the index of the first one with the same text, int32 [N].
    near
        Which of these are near-duplicates of which, sparse [N, N].
    family
        For every document the index of the first one of the same parent, int32 [N].

    Examples
    --------
    >>> pairs = [("a", "c", "near"), ("d", "c", "copy")]
    >>> table = pd.DataFrame(pairs, columns=["document_id", "other_id", "kind"])
    >>> related = RelatedDocuments.from_table(table, ["a", "b", "c", "d"])
    >>> related.first_of_text.tolist()
    [0, 1, 2, 2]
    >>> related.excluded(np.array([[0, -1], [1, 3]], np.int32)).tolist()
    [[0, 2, 3, -1], [0, 1, 2, 3]]
    >>> related.kinds(np.array([[0]], np.int32), np.array([[1, 3, -1]], np.int32)).tolist()
    [[0, 1, 0]]
    """

    def __init__(
        self,
        first_of_text: Int32s,
        near: sparse.csr_matrix,
        family: Int32s,
    ) -> None:
        self.first_of_text = first_of_text
        self._near = near
        documents = np.arange(len(self))
        self._text_to_documents = _matrix(first_of_text, documents, len(self))
        self._text_to_families = self._text_to_documents @ _matrix(documents, family, len(self))
        self._family_to_texts = self._text_to_families.T.tocsr()
        # Paths from a text through its families back to it: they are no siblings.
        self._self_paths = sparse.csr_matrix(self._text_to_families.power(2).sum(axis=1).T)

    @staticmethod
    def unrelated(documents: int) -> RelatedDocuments:
        """Return the lookup of N documents of which none is related to another."""
        numbers = np.arange(documents, dtype=np.int32)
        return RelatedDocuments(numbers, sparse.csr_matrix((documents, documents)), numbers)

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
        numbers = pd.Series(
            np.arange(len(document_ids)), index=pd.Index(document_ids, dtype=object)
        )
        first_of_text, family = np.tile(np.arange(len(numbers), dtype=np.int32), (2, 1))
        first = numbers.loc[table["document_id"]].to_numpy()
        second = numbers.loc[table["other_id"]].to_numpy()
        is_copy, is_near, is_sibling = (table["kind"] == kind for kind in (COPY, *KINDS))
        first_of_text[first[is_copy]] = second[is_copy]
        family[second[is_sibling]] = first[is_sibling]
        pairs = first_of_text[np.stack([first, second])[:, is_near]]
        pairs = pairs[:, pairs[0] != pairs[1]]
        near = _matrix(pairs.ravel(), pairs[::-1].ravel(), len(numbers))
        return RelatedDocuments(first_of_text, near, family)

    def __len__(self) -> int:
        return len(self.first_of_text)

    def same_text(self, documents: Int32s) -> Int32s:
        """Return the documents of each row and all of the same text, int32 [Q, P'] of [Q, P].

        Examples
        --------
        >>> pairs = [("c", "a", "copy")]
        >>> table = pd.DataFrame(pairs, columns=["document_id", "other_id", "kind"])
        >>> related = RelatedDocuments.from_table(table, ["a", "b", "c"])
        >>> related.same_text(np.array([[2], [1]], np.int32)).tolist()
        [[0, 2], [1, -1]]
        """
        return _listed((self._texts(documents) @ self._text_to_documents).sorted_indices())

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
        codes = row * len(self) + self.first_of_text[documents]
        codes = np.where(documents == PADDING, -1, codes)
        kinds = np.zeros(documents.shape, np.uint8)
        near, sibling = self._related(positives)
        # A near-duplicate overwrites a sibling.
        for kind, matrix in (("sibling", sibling), ("near", near)):
            pairs = matrix.tocoo()
            related_codes = pairs.row.astype(np.int64) * len(self) + pairs.col
            is_related = np.isin(codes, related_codes)
            kinds[is_related] = KINDS[kind]
        return kinds

    def excluded(self, positives: Int32s, query_documents: Int32s | None = None) -> Int32s:
        """Return the documents that may be no negatives: positives, related ones, their copies.

        Parameters
        ----------
        positives
            int32 [Q, P], padded with -1.
        query_documents
            Documents that the query itself is, int32 [Q, S], padded with -1; they and those of the
            same text are excluded as well, and what is related to them is not, since these may be
            what the query asks against.

        Returns
        -------
        numpy.ndarray
            int32 [Q, K], each row in order of document index and padded with -1; K is at least 1.
        """
        near, sibling = self._related(positives)
        texts = near + sibling + self._texts(positives)
        if query_documents is not None:
            texts = texts + self._texts(query_documents)
        return _listed((texts @ self._text_to_documents).sorted_indices())

    def _texts(self, documents: Int32s) -> sparse.csr_matrix:
        """Return which texts the documents of each row have, [Q, N], 1 each."""
        row, slot = np.nonzero(documents != PADDING)
        text = self.first_of_text[documents[row, slot]]
        texts = _matrix(row, text, len(self), len(documents))
        texts.data[:] = 1
        return texts

    def _related(self, positives: Int32s) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        """Return the near-duplicates and the siblings of the positives of each row, [Q, N]."""
        texts = self._texts(positives)
        # From each text to the parents of its documents, their parts and the texts of these; other
        # ones than itself.
        in_family = texts @ self._text_to_families @ self._family_to_texts
        siblings = in_family - texts.multiply(self._self_paths)
        return texts @ self._near, siblings


def _matrix(
    rows: NDArray[Any],
    columns: NDArray[Any],
    width: int,
    height: int | None = None,
) -> sparse.csr_matrix:
    shape = (width if height is None else height, width)
    ones = np.ones(len(rows), np.int64)
    return sparse.csr_matrix((ones, (rows, columns)), shape)
