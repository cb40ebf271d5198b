"""Retrieval as a function of a shard that worker processes can be sent: every source in one pass over the queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import MARKED, PADDING, SOURCES, Candidates
from anmi.engine.threads import outside_python
from anmi.retrieval import exact, pool
from anmi.retrieval.bm25 import BM25Index, above
from anmi.retrieval.dense import DenseIndex
from anmi.retrieval.related import RelatedDocuments

Floats = NDArray[np.float32]


class Queries(NamedTuple):
    """Queries of one shard.

    Attributes
    ----------
    query_ids, texts
        Of Q queries.
    positives
        All their relevant documents, int32 [Q, P], padded with -1.
    own
        The document that each query is itself or has the text of, int32 [Q], -1 where there is none.
    vectors
        Unit vectors, float32 [Q, D]; D is 0 where no encoder was asked.
    """

    query_ids: list[str]
    texts: list[str]
    positives: NDArray[np.int32]
    own: NDArray[np.int32]
    vectors: Floats


class Found(NamedTuple):
    """The best documents of Q queries; lists are best first, equal scores in the order of the corpus.

    Attributes
    ----------
    lexical, lexical_scores
        By BM25, int32 and float32 [Q, L]; -1 and 0 where no more documents share a term with the query. By rank_bm25,
        as its users have it, others fill the list, with a score of 0.
    nearest, nearest_scores
        By the encoder, int32 and float32 [Q, K].
    nearest_lexical, given
        Scores by BM25 of the nearest and of documents that were given, float32 [Q, K] and [Q, G]; NaN in padding.
    """

    lexical: NDArray[np.int32]
    lexical_scores: Floats
    nearest: NDArray[np.int32]
    nearest_scores: Floats
    nearest_lexical: Floats
    given: Floats


@outside_python
@dataclass(frozen=True)
class Retrieve:
    """Finds candidates by BM25, by an encoder and at random, each with the scores of both and the ranks in both lists.

    A rank is 1 + the number of documents of the whole corpus with a higher score, and unknown beyond the last candidate
    that a source found, or a deeper rank that is asked for: nobody reads those, and to count them costs as much as the
    search. Of positives the rank by BM25 is always known.

    Of a query with many positives some are drawn and measured, and the one of the median similarity (by BM25 where no
    encoder is asked) stands first. No candidate is a positive, the query itself or of the same text as these. What was
    retrieved comes best by fused rank first, and what was only drawn at random behind it: the first columns, which
    later stages judge, are the same with and without random documents.

    Attributes
    ----------
    bm25
        Index of the N documents; None where BM25 is not asked.
    vectors
        Their unit vectors, float32 [N, D]; None where no encoder is asked.
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
        Number of the document that each of the N was cut from, int32 [N]; -1 where nothing was cut. Of the passages of
        a positive the best are its positives, and none is a candidate.
    """

    bm25: BM25Index | None
    vectors: Floats | None
    approximate: DenseIndex | None
    related: RelatedDocuments
    bm25_depth: int
    dense_depth: int
    random: int
    seed: int
    bm25_ranks: int = 0
    dense_ranks: int = 0
    measured: int = 8
    passages: NDArray[np.int32] | None = None

    def __call__(self, queries: Queries) -> Candidates:
        """Return the candidates of a shard."""
        excluded = self.related.same_text(np.concatenate([queries.positives, queries.own[:, None]], axis=1))
        known_positives = queries.positives
        queries = queries._replace(positives=self._passages(queries))
        some = pool.some_of(self.seed, queries.query_ids, queries.positives, self.measured)
        queries = queries._replace(positives=some)
        drawn = pool.draw(self.seed, queries.query_ids, excluded, len(self.related), self.random)
        found = self._find(queries, excluded, np.concatenate([drawn, some, known_positives], axis=1))
        nearest, lexical = pool.without(found.nearest, excluded), pool.without(found.lexical, excluded)
        known = {
            "bm25_rank": pool.known_from(found.lexical_scores, lexical >= 0, self.bm25_depth, self.bm25_ranks),
            "dense_rank": pool.known_from(found.nearest_scores, nearest >= 0, self.dense_depth, self.dense_ranks),
        }
        random_values, own_values, given = np.split(found.given, np.cumsum([drawn.shape[1], some.shape[1]]), axis=1)
        documents, source, values = pool.merged(
            (*_first(self.bm25_depth, lexical, found.lexical_scores), "bm25"),
            (*_first(self.dense_depth, nearest, found.nearest_lexical), "dense"),
            (drawn, random_values, "random"),
        )
        best = np.fmax.reduce(given, axis=1, keepdims=True)
        cosines, higher = self._look(queries, documents, np.concatenate([own_values, best], axis=1), found)
        columns, own, of_query = (dict[str, Floats]() for _ in range(3))
        if self.bm25 is not None:
            columns["bm25"], own["bm25"] = values, own_values
            columns["bm25_rank"] = pool.listed_ranks(values, found.lexical_scores, known["bm25_rank"])
            own["bm25_rank"] = higher[:, :-1]
            of_query = {"best_bm25": best[:, 0], "best_bm25_rank": higher[:, -1]}
        if self.vectors is not None:
            ranks = pool.listed_ranks(cosines, found.nearest_scores, known["dense_rank"])
            for name, said in (("dense", cosines), ("dense_rank", ranks)):
                columns[name], own[name] = said[:, : documents.shape[1]], said[:, documents.shape[1] :]
        lists = [columns[name] for name in known if name in columns]
        columns["fused"] = pool.fused_rank(*lists) if lists else np.zeros(documents.shape, np.float32)
        kinds = self.related.kinds(known_positives, documents)
        columns["related"] = np.where(documents < 0, np.nan, kinds).astype(np.float32)
        first = pool.median_first(some, own.get("dense", own.get("bm25", np.zeros(some.shape, np.float32))))
        order = np.lexsort((documents, -columns["fused"], source == SOURCES["random"], documents < 0), axis=1)
        return Candidates(
            query_ids=np.array(queries.query_ids, dtype=np.str_),
            positives=np.take_along_axis(some, first, axis=1),
            documents=np.take_along_axis(documents, order, axis=1),
            source=np.take_along_axis(source, order, axis=1),
            columns={name: np.take_along_axis(values, order, axis=1) for name, values in columns.items()},
            positive_columns={name: np.take_along_axis(values, first, axis=1) for name, values in own.items()},
            query_columns=of_query,
        )

    def _passages(self, queries: Queries) -> NDArray[np.int32]:
        """Return the positives with the best passages of those that were cut, int32 [Q, P]."""
        given = queries.positives
        if self.passages is None or not (self.passages[given[given != PADDING]] >= 0).any():
            return given
        lexical = None if self.bm25 is None else self.bm25.search_and_look(queries.texts, 1, given)[2]
        vectors = self.vectors
        nearest = None if vectors is None else exact.similarities(queries.vectors, vectors, given)
        return pool.best_passages(given, self.passages, lexical, nearest)

    def _find(self, queries: Queries, excluded: NDArray[np.int32], given: NDArray[np.int32]) -> Found:
        """Return the best of all documents, deep enough that what is excluded leaves enough."""
        deepest = min(max(self.bm25_depth + excluded.shape[1], self.bm25_ranks), len(self.related))
        nearest, scores = self._nearest(queries, excluded.shape[1])
        if self.bm25 is None:
            lexical = np.empty((len(given), 0), np.int32)
            nothing = (np.full(each.shape, np.nan, np.float32) for each in (nearest, given))
            return Found(lexical, lexical.astype(np.float32), nearest, scores, *nothing)
        places = np.concatenate([given, nearest], axis=1)
        lexical, lexical_scores, values = self.bm25.search_and_look(queries.texts, deepest, places)
        if self.bm25.settings["engine"] == "rank_bm25":
            lexical = pool.filled(lexical)
        width = given.shape[1]
        return Found(lexical, lexical_scores, nearest, scores, values[:, width:], values[:, :width])

    def _nearest(self, queries: Queries, excluded: int) -> tuple[NDArray[np.int32], Floats]:
        depth = max(self.dense_depth + excluded if self.dense_depth else 0, self.dense_ranks)
        depth = min(depth, len(self.related))
        if self.vectors is None or not depth:
            nothing = np.zeros((len(queries.texts), 0), np.float32)
            return nothing.astype(np.int32), nothing
        if self.approximate is None:
            return exact.nearest(queries.vectors, self.vectors, depth)
        nearest, _ = self.approximate.search(queries.vectors, depth)
        # What an index of compressed vectors takes for their scores is none of the candidates' scores.
        scores = np.nan_to_num(exact.similarities(queries.vectors, self.vectors, nearest), nan=-np.inf)
        order = np.lexsort((nearest, -scores), axis=1)
        return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def _look(self, queries: Queries, documents: NDArray[np.int32], own: Floats, found: Found) -> tuple[Floats, Floats]:
        """Return cosines with candidates and positives, [Q, M + P], and the ranks that scores by BM25 have, [Q, G].

        Ranks follow from the list; only those of scores below its end have to be counted.
        """
        end = found.lexical_scores[:, -1:] if found.lexical.shape[1] else np.full((len(own), 1), np.inf, np.float32)
        ranks = pool.listed_ranks(own, found.lexical_scores, end)
        unknown = np.isnan(ranks) & ~np.isnan(own)
        rows = np.flatnonzero(unknown.any(axis=1))
        if self.bm25 is not None and len(rows):
            below = np.where(unknown, own, np.nan)[rows]
            higher = np.zeros(below.shape, np.int64)
            for some, full in self.bm25.scored([queries.texts[row] for row in rows], 0):
                higher[some] = above(full, below[some])
            ranks[rows] = np.where(np.isnan(below), ranks[rows], higher + 1)
        if self.vectors is None:
            return np.zeros((len(own), 0), np.float32), ranks
        wanted = np.concatenate([documents, queries.positives], axis=1)
        return exact.similarities(queries.vectors, self.vectors, wanted), ranks


def _first(depth: int, documents: NDArray[np.int32], values: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Return the first documents of each list that are candidates, [Q, depth], with their values."""
    documents, values = pool.compacted(documents, values)
    return documents[:, :depth], values[:, :depth]


@dataclass(frozen=True)
class Marked:
    """Adds the column ``marked`` to a block: 0 of candidates that were marked as not relevant, else NaN.

    What was marked as relevant is a positive, and so no candidate.

    Attributes
    ----------
    queries, documents
        The pairs: ids of queries [n], and the rows of the documents in the corpus, int64 [n].
    """

    queries: NDArray[np.str_]
    documents: NDArray[np.int64]

    @staticmethod
    def of(marks: pd.DataFrame | None, document_ids: list[str]) -> Marked | None:
        """Return what adds the column for marks, ``query_id, document_id, relevance``; None where none refutes."""
        refuted = marks[marks["relevance"] == 0] if marks is not None else pd.DataFrame()
        if refuted.empty:
            return None
        place = dict(zip(document_ids, range(len(document_ids)), strict=True))
        rows: Any = refuted["document_id"].map(place).to_numpy(np.int64)
        return Marked(refuted["query_id"].to_numpy(np.str_), rows)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with the column."""
        names, row = np.unique(block.query_ids, return_inverse=True)
        at = np.minimum(np.searchsorted(names, self.queries), len(names) - 1)
        here = names[at] == self.queries
        # A pair as one number: which query of the block, and which document.
        size = int(max(block.documents.max(initial=0), self.documents.max(initial=0))) + 1
        pairs = row[:, None].astype(np.int64) * size + block.documents
        found = np.isin(pairs, at[here] * size + self.documents[here]) & (block.documents != PADDING)
        return block.with_columns({MARKED: np.where(found, 0.0, np.nan).astype(np.float32)})
