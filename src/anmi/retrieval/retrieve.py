"""Worker processes retrieve candidates of a shard from all sources in one pass over its queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from anmi.candidates import MARKED, PADDING, SOURCES, Candidates
from anmi.ragged import Float32s, Int32s, Int64s, in_rows
from anmi.retrieval import exact, pool
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.index import DenseIndex
from anmi.retrieval.pool import RelatedDocuments

# Copies that may stand above a candidate, as a multiple of the candidates of a source.
_COPIES: Final = 4
# Cells of positives to a query of a shard: one with thousands of them shares its shard with few
# others.
_POSITIVES: Final = 64


class Queries(NamedTuple):
    """Queries of one shard.

    Attributes
    ----------
    query_ids, texts
        Of Q queries.
    positives
        All their relevant documents, int32 [Q, P], padded with -1.
    query_documents
        The document that each query is itself or has the text of, int32 [Q], -1 where there is
        none.
    vectors
        float32 [Q, D]; D is 0 where no encoder was asked.
    """

    query_ids: list[str]
    texts: list[str]
    positives: Int32s
    query_documents: Int32s
    vectors: Float32s


def query_shards(
    query_ids: list[str],
    texts: list[str],
    positives: pool.Positives,
    query_documents: Int32s,
    vectors: Float32s,
    size: int,
) -> list[Queries]:
    """Return queries in shards of at most ``size``; see :class:`Queries` for the parameters."""
    return [
        Queries(
            query_ids[rows],
            texts[rows],
            positives.of(query_ids[rows]),
            query_documents[rows],
            vectors[rows],
        )
        for rows in _cuts(positives.counts(query_ids), size)
    ]


def _cuts(counts: Int64s, size: int) -> Iterator[slice]:
    """Cut queries into shards of at most so many, and of fewer where one has many positives."""
    start = 0
    widest = 1
    for row, count in enumerate(counts.tolist()):
        widest = max(widest, count)
        is_full = row - start == size
        if is_full or (row > start and (row - start + 1) * widest > size * _POSITIVES):
            yield slice(start, row)
            start = row
            widest = max(count, 1)
    if len(counts):
        yield slice(start, len(counts))


@dataclass(frozen=True)
class Retrieve:
    """Finds candidates by BM25, by an encoder and at random, with their scores and ranks by both.

    A rank is 1 + the number of documents of the whole corpus with a higher score. It is NaN below
    the last candidate that a source found, or below ``bm25_ranks`` and ``dense_ranks`` where these
    are deeper: nobody reads such ranks, and counting them costs as much as the search. Positives
    always have a rank by BM25. By rank_bm25 a rank is the place in that package's own order, and
    always known.

    Of a query with many positives some are drawn and measured, and the one of the median similarity
    (by BM25 where no encoder is asked) stands first. No candidate is a positive, the query itself
    or of the same text as these. What was retrieved comes best by fused rank first, and what was
    only drawn at random behind it: the first columns, which later stages judge, are the same with
    and without random documents.

    Attributes
    ----------
    bm25
        Index of the N documents; None where BM25 is not asked.
    vectors
        Theirs, float32 [N, D], compared by inner products; None where no encoder is asked.
    longest
        Largest norm of ``vectors``.
    rounded
        The same vectors in bfloat16 where that is faster; they change no result.
    approximate
        What searches the vectors in the place of matrix products, if anything does.
    related
        Copies of the N documents, their near-duplicates and siblings.
    bm25_depth, dense_depth, random
        Documents per query and source.
    seed
        Of the run.
    bm25_ranks, dense_ranks
        Down to which rank of each source ranks are known in any case.
    measured
        Positives of a query that are measured, at most.
    passages
        Number of the document that each of the N was cut from, int32 [N]; -1 where nothing was cut.
        Of the passages of a positive the best are its positives, and none is a candidate.
    """

    bm25: BM25Index | None
    vectors: Float32s | None
    approximate: DenseIndex | None
    related: RelatedDocuments
    bm25_depth: int
    dense_depth: int
    random: int
    seed: int
    bm25_ranks: int = 0
    dense_ranks: int = 0
    measured: int = 8
    passages: Int32s | None = None
    longest: float = 1.0
    rounded: exact.Rounded | None = None

    def __call__(self, queries: Queries) -> Candidates:
        """Return the candidates of a shard."""
        labels = queries.positives
        excluded = self.related.same_text(
            np.concatenate([labels, queries.query_documents[:, None]], axis=1)
        )
        positives = self._passages(queries)
        positives = pool.some_of(self.seed, queries.query_ids, positives, self.measured)
        drawn = self._drawn(queries.query_ids, excluded)
        near, near_scores = self._nearest(queries, excluded.shape[1])
        looked_up = np.concatenate([drawn, positives, labels, near], axis=1)
        lexical, lexical_scores, scores = self._lexical(queries, excluded.shape[1], looked_up)
        widths = [drawn.shape[1], positives.shape[1], labels.shape[1]]
        drawn_bm25, positive_bm25, label_bm25, near_bm25 = np.split(
            scores, np.cumsum(widths), axis=1
        )
        lexical = self._candidates(lexical, excluded)
        near = self._candidates(near, excluded)
        documents, source, bm25 = pool.merged(
            (*_first(self.bm25_depth, lexical, lexical_scores), "bm25"),
            (*_first(self.dense_depth, near, near_bm25), "dense"),
            (drawn, drawn_bm25, "random"),
        )
        columns, positive_columns, query_columns = (dict[str, Float32s]() for _ in range(3))
        if self.bm25 is not None:
            best = np.fmax.reduce(label_bm25, axis=1, keepdims=True)
            lowest = pool.lowest_known_score(
                lexical_scores, lexical >= 0, self.bm25_depth, self.bm25_ranks
            )
            rank, positive_rank, best_rank = _bm25_ranks(
                self.bm25,
                queries.texts,
                (documents, positives, labels),
                (bm25, positive_bm25, best),
                (lexical_scores, lowest),
            )
            columns = {"bm25": bm25, "bm25_rank": rank}
            positive_columns = {"bm25": positive_bm25, "bm25_rank": positive_rank}
            query_columns = {"best_bm25": best[:, 0], "best_bm25_rank": best_rank}
        if self.vectors is not None:
            lowest = pool.lowest_known_score(
                near_scores, near >= 0, self.dense_depth, self.dense_ranks
            )
            for measured, arrays in ((documents, columns), (positives, positive_columns)):
                arrays["dense"] = exact.similarities(queries.vectors, self.vectors, measured)
                arrays["dense_rank"] = pool.listed_ranks(arrays["dense"], near_scores, lowest)
        ranks = [columns[name] for name in ("bm25_rank", "dense_rank") if name in columns]
        unranked = np.full(documents.shape, np.nan, np.float32)
        columns["fused"] = pool.fused_rank(*ranks, unranked)
        related = np.where(documents < 0, np.nan, self.related.kinds(labels, documents))
        columns["related"] = related.astype(np.float32)
        query_ids = np.array(queries.query_ids, dtype=np.str_)
        tables = (columns, positive_columns, query_columns)
        return _in_order(Candidates(query_ids, positives, documents, source, *tables))

    def _candidates(self, documents: Int32s, excluded: Int32s) -> Int32s:
        """Return the documents that may be candidates, int32 [Q, M], and -1 in place of others."""
        candidates = pool.without(documents, excluded)
        is_original = self.related.first_of_text[candidates] == candidates
        return np.where(is_original, candidates, np.int32(PADDING))

    def _drawn(self, query_ids: list[str], excluded: Int32s) -> Int32s:
        """Draw random candidates of each query among the texts of the corpus, int32 [Q, R]."""
        if not self.random:
            return np.empty((len(query_ids), 0), np.int32)
        texts, number = np.unique(self.related.first_of_text, return_inverse=True)
        excluded_texts = np.where(excluded == PADDING, PADDING, number[excluded])
        excluded_texts = excluded_texts.astype(np.int32)
        drawn = pool.draw(self.seed, query_ids, excluded_texts, len(texts), self.random)
        documents = np.where(drawn == PADDING, PADDING, texts[drawn])
        return documents.astype(np.int32)

    def _search_depth(self, candidate_count: int, excluded_count: int) -> int:
        """Return how deep to search for candidates beside excluded documents and some copies."""
        is_copy = self.related.first_of_text != np.arange(len(self.related))
        copies = min(int(np.count_nonzero(is_copy)), _COPIES * candidate_count)
        return candidate_count + excluded_count + copies

    def _passages(self, queries: Queries) -> Int32s:
        """Return the positives with the best passages of those that were cut, int32 [Q, P]."""
        positives = queries.positives
        if self.passages is None:
            return positives
        parents = self.passages[positives[positives != PADDING]]
        if not (parents >= 0).any():
            return positives
        bm25_scores = dense_scores = None
        if self.bm25 is not None:
            bm25_scores = self.bm25.search_and_look(queries.texts, 1, positives)[2]
        if self.vectors is not None:
            dense_scores = exact.similarities(queries.vectors, self.vectors, positives)
        return pool.best_passages(positives, self.passages, bm25_scores, dense_scores)

    def _lexical(
        self, queries: Queries, excluded: int, documents: Int32s
    ) -> tuple[Int32s, Float32s, Float32s]:
        """Return the best by BM25, enough beside excluded ones, and the scores of ``documents``.

        -1 and 0 stand where no more documents share a term with the query. By rank_bm25, as its
        users have it, others fill the list, with a score of 0, and excluded ones count towards its
        length.
        """
        if self.bm25 is None:
            nothing = np.empty((len(documents), 0), np.float32)
            unscored = np.full(documents.shape, np.nan, np.float32)
            return nothing.astype(np.int32), nothing, unscored
        depth = max(self._search_depth(self.bm25_depth, excluded), self.bm25_ranks)
        if self.bm25.is_okapi:
            depth = self.bm25_depth
        depth = min(depth, len(self.related))
        return self.bm25.search_and_look(queries.texts, depth, documents)

    def _nearest(self, queries: Queries, excluded: int) -> tuple[Int32s, Float32s]:
        depth = self._search_depth(self.dense_depth, excluded) if self.dense_depth else 0
        depth = min(max(depth, self.dense_ranks), len(self.related))
        if self.vectors is None or not depth:
            nothing = np.zeros((len(queries.texts), 0), np.float32)
            return nothing.astype(np.int32), nothing
        if self.approximate is None:
            return exact.nearest(
                queries.vectors,
                self.vectors,
                depth,
                self.longest,
                rounded_embeddings=self.rounded,
            )
        nearest, _ = self.approximate.search(queries.vectors, depth)
        # By the formula that all candidates are scored by.
        scores = np.nan_to_num(
            exact.similarities(queries.vectors, self.vectors, nearest), nan=-np.inf
        )
        order = np.lexsort((nearest, -scores))
        return in_rows(nearest, order), in_rows(scores, order)


def _in_order(block: Candidates) -> Candidates:
    """Put the positive of the median score first, and candidates in order of their fused rank."""
    unscored = np.zeros(block.positives.shape, np.float32)
    scores = block.positive_columns.get("dense", block.positive_columns.get("bm25", unscored))
    median_order = pool.median_first(block.positives, scores)
    is_random = block.source == SOURCES["random"]
    keys = (block.documents, -block.columns["fused"], is_random, ~block.filled)
    order = np.lexsort(keys, axis=1)
    return replace(
        block,
        positives=in_rows(block.positives, median_order),
        documents=in_rows(block.documents, order),
        source=in_rows(block.source, order),
        columns={name: in_rows(values, order) for name, values in block.columns.items()},
        positive_columns={
            name: in_rows(values, median_order) for name, values in block.positive_columns.items()
        },
    )


def _bm25_ranks(
    bm25: BM25Index,
    texts: list[str],
    documents: tuple[Int32s, Int32s, Int32s],
    scores: tuple[Float32s, Float32s, Float32s],
    listed: tuple[Float32s, Float32s],
) -> tuple[Float32s, Float32s, Float32s]:
    """Return the ranks of candidates and of positives, and the best rank of any label, [Q].

    Parameters
    ----------
    documents
        Candidates, positives and labels.
    scores
        Of candidates and of positives, and the best score of any label.
    listed
        Scores of the list, and that from which on it tells ranks.
    """
    if bm25.is_okapi:
        ranks = bm25.places(texts, np.concatenate(documents, axis=1))
        ends = np.cumsum([array.shape[1] for array in documents[:2]])
        rank, positive_rank, label_rank = np.split(ranks, ends, axis=1)
        return rank, positive_rank, np.fmin.reduce(label_rank, axis=1)
    candidate_ranks = pool.listed_ranks(scores[0], *listed)
    other_scores = np.concatenate(scores[1:], axis=1)
    ranks = _ranks_of(bm25, texts, other_scores, listed[0])
    return candidate_ranks, ranks[:, :-1], ranks[:, -1]


def _ranks_of(
    bm25: BM25Index,
    texts: list[str],
    scores: Float32s,
    listed: Float32s,
) -> Float32s:
    """Return the ranks of any scores [Q, G]; those below the end of the list are counted."""
    from_infinity = np.pad(listed, ((0, 0), (1, 0)), constant_values=np.inf)
    lowest = from_infinity[:, -1:]
    ranks = pool.listed_ranks(scores, listed, lowest)
    is_unknown = np.isnan(ranks) & ~np.isnan(scores)
    rows = np.flatnonzero(is_unknown.any(axis=1))
    for block, full in bm25.scored([texts[row] for row in rows], 0):
        for place, row in enumerate(rows[block]):
            for slot in np.flatnonzero(is_unknown[row]):
                is_higher = full[place] > scores[row, slot]
                ranks[row, slot] = 1 + np.count_nonzero(is_higher)
    return ranks


def _first(
    depth: int,
    documents: Int32s,
    scores: Float32s,
) -> tuple[Int32s, Float32s]:
    """Return the first candidates of each list, [Q, depth], with their scores."""
    documents, scores = pool.compacted(documents, scores)
    return documents[:, :depth], scores[:, :depth]


def marked(block: Candidates, refuted: pool.Positives) -> Candidates:
    """Add the column ``marked`` to a block: 0 of candidates marked as not relevant, else NaN.

    What was marked as relevant is a positive, and so no candidate.

    Parameters
    ----------
    refuted
        The documents that were marked, by query.
    """
    unmarked = pool.without(block.documents, refuted.of(block.query_ids))
    is_marked = block.filled & (unmarked == PADDING)
    return block.with_columns({MARKED: np.where(is_marked, 0.0, np.nan)})
