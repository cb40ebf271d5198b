"""Worker processes retrieve the candidates of a shard from all sources in one pass over its queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from anmi.candidates import MARKED, PADDING, SOURCES, Candidates
from anmi.ragged import Float32s, Int32s, in_rows
from anmi.retrieval import exact, pool
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.index import DenseIndex
from anmi.retrieval.pool import RelatedDocuments

# Copies that may stand above a candidate, as a multiple of the candidates of a source.
_COPIES: Final = 4


class Queries(NamedTuple):
    """Queries of one shard.

    Attributes
    ----------
    query_ids, texts
        Of Q queries.
    positives
        All their relevant documents, int32 [Q, P], padded with -1.
    own
        The document that each query is itself or has the text of, int32 [Q], -1 where there is
        none.
    vectors
        float32 [Q, D]; D is 0 where no encoder was asked.
    """

    query_ids: list[str]
    texts: list[str]
    positives: Int32s
    own: Int32s
    vectors: Float32s


@dataclass(frozen=True)
class Retrieve:
    """Finds candidates by BM25, by an encoder and at random, each with the scores of both and the ranks in both lists.

    A rank is 1 + the number of documents of the whole corpus with a higher score, and unknown
    beyond the last candidate that a source found, or a deeper rank that is asked for: nobody reads
    those, and to count them costs as much as the search. Of positives the rank by BM25 is always
    known. By rank_bm25 it is the place in that package's own order, and always known.

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
        Length of the longest of them.
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

    def __call__(self, queries: Queries) -> Candidates:
        """Return the candidates of a shard."""
        excluded = self.related.same_text(
            np.concatenate([queries.positives, queries.own[:, None]], axis=1)
        )
        known_positives = queries.positives
        queries = queries._replace(positives=self._passages(queries))
        some = pool.some_of(self.seed, queries.query_ids, queries.positives, self.measured)
        queries = queries._replace(positives=some)
        drawn = self._drawn(queries.query_ids, excluded)
        looked_up = np.concatenate([drawn, some, known_positives], axis=1)
        near, near_scores = self._nearest(queries, excluded.shape[1])
        lexical_documents, scores, values = self._lexical(
            queries, excluded.shape[1], np.concatenate([looked_up, near], axis=1)
        )
        nearest = self._candidates(near, excluded)
        lexical = self._candidates(lexical_documents, excluded)
        rank_bounds = {
            "bm25_rank": pool.known_from(scores, lexical >= 0, self.bm25_depth, self.bm25_ranks),
            "dense_rank": pool.known_from(
                near_scores, nearest >= 0, self.dense_depth, self.dense_ranks
            ),
        }
        ends = np.cumsum([drawn.shape[1], some.shape[1], known_positives.shape[1]])
        random_values, own_values, label_values, near_values = np.split(values, ends, axis=1)
        documents, source, values = pool.merged(
            (*_first(self.bm25_depth, lexical, scores), "bm25"),
            (*_first(self.dense_depth, nearest, near_values), "dense"),
            (drawn, random_values, "random"),
        )
        best = np.fmax.reduce(label_values, axis=1, keepdims=True)
        columns, own, of_query = (dict[str, Float32s]() for _ in range(3))
        if self.bm25 is not None:
            columns["bm25"] = values
            own["bm25"] = own_values
            if self.bm25.settings["engine"] == "rank_bm25":
                looked_up = np.concatenate([documents, some, known_positives], axis=1)
                ranks = self.bm25.places(queries.texts, looked_up)
                ends = np.cumsum([documents.shape[1], some.shape[1]])
                columns["bm25_rank"], own["bm25_rank"], label_ranks = np.split(ranks, ends, axis=1)
                best_rank = np.fmin.reduce(label_ranks, axis=1)
            else:
                looked_up = np.concatenate([own_values, best], axis=1)
                ranks = self._higher(queries.texts, looked_up, scores)
                columns["bm25_rank"] = pool.listed_ranks(values, scores, rank_bounds["bm25_rank"])
                own["bm25_rank"] = ranks[:, :-1]
                best_rank = ranks[:, -1]
            of_query = {"best_bm25": best[:, 0], "best_bm25_rank": best_rank}
        if self.vectors is not None:
            cosines = exact.similarities(
                queries.vectors, self.vectors, np.concatenate([documents, some], axis=1)
            )
            ranks = pool.listed_ranks(cosines, near_scores, rank_bounds["dense_rank"])
            for name, said in (("dense", cosines), ("dense_rank", ranks)):
                columns[name] = said[:, : documents.shape[1]]
                own[name] = said[:, documents.shape[1] :]
        lists = [columns[name] for name in rank_bounds if name in columns]
        columns["fused"] = (
            pool.fused_rank(*lists) if lists else np.zeros(documents.shape, np.float32)
        )
        kinds = self.related.kinds(known_positives, documents)
        columns["related"] = np.where(documents < 0, np.nan, kinds).astype(np.float32)
        first = pool.median_first(
            some, own.get("dense", own.get("bm25", np.zeros(some.shape, np.float32)))
        )
        order = np.lexsort(
            (documents, -columns["fused"], source == SOURCES["random"], documents < 0), axis=1
        )
        return Candidates(
            query_ids=np.array(queries.query_ids, dtype=np.str_),
            positives=in_rows(some, first),
            documents=in_rows(documents, order),
            source=in_rows(source, order),
            columns={name: in_rows(values, order) for name, values in columns.items()},
            positive_columns={name: in_rows(values, first) for name, values in own.items()},
            query_columns=of_query,
        )

    def _candidates(self, documents: Int32s, excluded: Int32s) -> Int32s:
        """Return the documents that may be candidates, int32 [Q, M], and -1 in the place of others."""
        candidates = pool.without(documents, excluded)
        first = self.related.first_of_text[candidates]
        return np.where(first == candidates, candidates, np.int32(PADDING))

    def _drawn(self, query_ids: list[str], excluded: Int32s) -> Int32s:
        """Draw random candidates of each query among the texts of the corpus, int32 [Q, R]."""
        texts, number = np.unique(self.related.first_of_text, return_inverse=True)
        excluded_texts = np.where(excluded == PADDING, PADDING, number[excluded]).astype(np.int32)
        drawn = pool.draw(self.seed, query_ids, excluded_texts, len(texts), self.random)
        return np.where(drawn == PADDING, PADDING, texts[drawn]).astype(np.int32)

    def _depth(self, candidates: int, excluded: int) -> int:
        """Return how many documents hold so many candidates, if not most of the best are copies."""
        first = self.related.first_of_text
        copies = int(np.count_nonzero(first != np.arange(len(first))))
        return candidates + excluded + min(copies, _COPIES * candidates)

    def _passages(self, queries: Queries) -> Int32s:
        """Return the positives with the best passages of those that were cut, int32 [Q, P]."""
        given = queries.positives
        if self.passages is None or not (self.passages[given[given != PADDING]] >= 0).any():
            return given
        lexical = (
            None if self.bm25 is None else self.bm25.search_and_look(queries.texts, 1, given)[2]
        )
        vectors = self.vectors
        nearest = None if vectors is None else exact.similarities(queries.vectors, vectors, given)
        return pool.best_passages(given, self.passages, lexical, nearest)

    def _lexical(
        self, queries: Queries, excluded: int, wanted: Int32s
    ) -> tuple[Int32s, Float32s, Float32s]:
        """Return the best by BM25, deep enough that excluded ones leave enough, and the scores of wanted documents.

        -1 and 0 stand where no more documents share a term with the query. By rank_bm25, as its
        users have it, others fill the list, with a score of 0, and excluded ones count towards its
        length.
        """
        if self.bm25 is None:
            none = np.empty((len(wanted), 0), np.int32)
            return none, none.astype(np.float32), np.full(wanted.shape, np.nan, np.float32)
        depth = self._depth(self.bm25_depth, excluded)
        deepest = min(max(depth, self.bm25_ranks), len(self.related))
        if self.bm25.settings["engine"] == "rank_bm25":
            deepest = min(self.bm25_depth, len(self.related))
        return self.bm25.search_and_look(queries.texts, deepest, wanted)

    def _nearest(self, queries: Queries, excluded: int) -> tuple[Int32s, Float32s]:
        depth = self._depth(self.dense_depth, excluded) if self.dense_depth else 0
        depth = min(max(depth, self.dense_ranks), len(self.related))
        if self.vectors is None or not depth:
            nothing = np.zeros((len(queries.texts), 0), np.float32)
            return nothing.astype(np.int32), nothing
        if self.approximate is None:
            return exact.nearest(queries.vectors, self.vectors, depth, self.longest)
        nearest, _ = self.approximate.search(queries.vectors, depth)
        # By the formula that all candidates are scored by.
        scores = np.nan_to_num(
            exact.similarities(queries.vectors, self.vectors, nearest), nan=-np.inf
        )
        order = np.lexsort((nearest, -scores))
        return in_rows(nearest, order), in_rows(scores, order)

    def _higher(self, texts: list[str], values: Float32s, listed: Float32s) -> Float32s:
        """Return the ranks by BM25 of any scores [Q, G]; those below the end of the list are counted."""
        end = listed[:, -1:] if listed.shape[1] else np.full((len(values), 1), np.inf, np.float32)
        ranks = pool.listed_ranks(values, listed, end)
        unknown = np.isnan(ranks) & ~np.isnan(values)
        rows = np.flatnonzero(unknown.any(axis=1))
        if self.bm25 is not None and len(rows):
            below = np.where(unknown, values, np.nan)[rows]
            for some, full in self.bm25.scored([texts[row] for row in rows], 0):
                for place, slot in np.argwhere(~np.isnan(below[some])):
                    row = rows[some][place]
                    ranks[row, slot] = 1 + np.count_nonzero(full[place] > values[row, slot])
        return ranks


def _first(depth: int, documents: Int32s, values: Float32s) -> tuple[Int32s, Float32s]:
    """Return the first documents of each list that are candidates, [Q, depth], with their values."""
    documents, values = pool.compacted(documents, values)
    return documents[:, :depth], values[:, :depth]


def marked(block: Candidates, refuted: pool.Positives) -> Candidates:
    """Add the column ``marked`` to a block: 0 of candidates that were marked as not relevant, else NaN.

    What was marked as relevant is a positive, and so no candidate.

    Parameters
    ----------
    refuted
        The documents that were marked, by query.
    """
    left = pool.without(block.documents, refuted.of(block.query_ids.tolist()))
    return block.with_columns({MARKED: np.where(block.filled & (left == PADDING), 0.0, np.nan)})
