"""Retrieval as a function of a shard that worker processes can be sent: every source in one pass over the queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING, SOURCES, Candidates
from anmi.engine.threads import outside_python
from anmi.retrieval import pool, random
from anmi.retrieval.best import best
from anmi.retrieval.bm25 import BM25Index, score_and_rank
from anmi.retrieval.dense import DenseIndex
from anmi.retrieval.exact import similarities
from anmi.retrieval.related import RelatedDocuments

Arrays = dict[str, NDArray[np.float32]]


class Queries(NamedTuple):
    """Queries of one shard.

    Attributes
    ----------
    query_ids, texts
        Of Q queries.
    positives
        Their relevant documents, int32 [Q, P], padded with -1.
    own
        The document that each query is itself or has the text of, int32 [Q], -1 where there is none.
    vectors
        Unit vectors, float32 [Q, D]; D is 0 where no encoder was asked.
    """

    query_ids: list[str]
    texts: list[str]
    positives: NDArray[np.int32]
    own: NDArray[np.int32]
    vectors: NDArray[np.float32]


@outside_python
@dataclass(frozen=True)
class Retrieve:
    """Finds candidates by BM25, by an encoder and at random, each with the scores of both and the ranks in both lists.

    A rank is 1 + the number of documents of the whole corpus with a higher score, and unknown beyond the last candidate
    that a source found, or a deeper rank that is asked for: nobody reads those, and to count them costs as much as the
    search. Of positives the rank by BM25 is always known.

    No candidate is a positive, the query itself or of the same text as these. What was retrieved comes best by fused
    rank first, and what was only drawn at random behind it: the first columns, which later stages judge, are the same
    with and without random documents.

    Attributes
    ----------
    bm25, dense
        Indexes of the corpus; None for a source that is not asked.
    embeddings
        Unit vectors of the documents, float32 [N, D].
    related
        Copies of the N documents, their near-duplicates and siblings.
    bm25_depth, dense_depth, random
        Documents per query and source.
    seed
        Of the run.
    bm25_ranks, dense_ranks
        Down to which rank of each source ranks are known in any case.
    """

    bm25: BM25Index | None
    dense: DenseIndex | None
    embeddings: NDArray[np.float32]
    related: RelatedDocuments
    bm25_depth: int
    dense_depth: int
    random: int
    seed: int
    bm25_ranks: int = 0
    dense_ranks: int = 0

    def __call__(self, queries: Queries) -> Candidates:
        """Return the candidates of a shard."""
        excluded = self.related.same_text(np.concatenate([queries.positives, queries.own[:, None]], axis=1))
        listed, found = self._nearest(queries, excluded)
        drawn = random.draw(self.seed, queries.query_ids, excluded, len(self.related), self.random)
        documents, source = pool.union(
            found, np.where(found >= 0, SOURCES["dense"], 0).astype(np.uint8), drawn, "random"
        )
        columns, own = dict[str, NDArray[np.float32]](), dict[str, NDArray[np.float32]]()
        if self.bm25 is not None:
            documents, source, columns, own = self._lexical(queries, excluded, documents, source)
        if self.dense is not None:
            wanted, width = np.concatenate([documents, queries.positives], axis=1), documents.shape[1]
            values = similarities(queries.vectors, self.embeddings, wanted)
            for name, said in (("dense", values), ("dense_rank", pool.listed_ranks(values, *listed))):
                columns[name], own[name] = said[:, :width], said[:, width:]
        ranks = [columns[name] for name in ("bm25_rank", "dense_rank") if name in columns]
        columns["fused"] = pool.fused_rank(*ranks) if ranks else np.zeros(documents.shape, np.float32)
        columns["related"] = np.where(documents < 0, np.nan, self.related.kinds(queries.positives, documents)).astype(
            np.float32
        )
        order = np.lexsort((documents, -columns["fused"], source == SOURCES["random"], documents < 0), axis=1)
        return Candidates(
            query_ids=np.array(queries.query_ids, dtype=np.str_),
            positives=queries.positives,
            documents=np.take_along_axis(documents, order, axis=1),
            source=np.take_along_axis(source, order, axis=1),
            columns={name: np.take_along_axis(values, order, axis=1) for name, values in columns.items()},
            positive_columns=own,
        )

    def _nearest(
        self, queries: Queries, excluded: NDArray[np.int32]
    ) -> tuple[tuple[NDArray[np.float32], NDArray[np.float32]], NDArray[np.int32]]:
        """Return the scores of the encoder's lists, falling, and from which on ranks are known; and the candidates."""
        if self.dense is None:
            nothing = np.zeros((len(queries.texts), 0), np.float32)
            return (nothing, nothing), nothing.astype(np.int32)
        wanted = max(self.dense_depth + excluded.shape[1] if self.dense_depth else 0, self.dense_ranks)
        nearest, scores = self.dense.search(queries.vectors, wanted)
        if self.dense.settings["kind"] != "flat":
            # What an index of compressed vectors takes for their scores is none of the candidates' scores.
            scores = np.nan_to_num(similarities(queries.vectors, self.embeddings, nearest), nan=-np.inf)
            order = np.lexsort((nearest, -scores), axis=1)
            nearest, scores = np.take_along_axis(nearest, order, axis=1), np.take_along_axis(scores, order, axis=1)
        nearest = pool.without(nearest, excluded)
        least = pool.known_from(scores, nearest >= 0, self.dense_depth, self.dense_ranks)
        return (scores, least), pool.compacted(nearest)[0][:, : self.dense_depth].astype(np.int32)

    def _lexical(
        self,
        queries: Queries,
        excluded: NDArray[np.int32],
        others: NDArray[np.int32],
        others_source: NDArray[np.uint8],
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8], Arrays, Arrays]:
        """Add what BM25 finds to other candidates, and score and rank all of them while a query's scores are at hand.

        Returns
        -------
        tuple
            Documents and sources [Q, M], and ``bm25`` and ``bm25_rank`` of candidates and of positives.
        """
        assert self.bm25 is not None
        parts: list[tuple[NDArray[Any], ...]] = []
        wanted = max(self.bm25_depth + excluded.shape[1], self.bm25_ranks)
        for some, scores in self.bm25.scored(queries.texts, max(wanted, others.shape[1])):
            found, listed = best(scores, min(wanted, scores.shape[1]))
            found = pool.without(found, excluded[some])
            least = pool.known_from(listed, found >= 0, self.bm25_depth, self.bm25_ranks)
            found = pool.compacted(found)[0][:, : self.bm25_depth].astype(np.int32)
            source = np.where(found >= 0, SOURCES["bm25"], 0).astype(np.uint8)
            documents, source = pool.merged(found, source, others[some], others_source[some])
            values = np.take_along_axis(scores, np.maximum(documents, 0), axis=1)
            values[documents < 0] = np.nan
            ranks = pool.listed_ranks(values, listed, least)
            parts.append((documents, source, values, ranks, *score_and_rank(scores, queries.positives[some])))
        documents, source, bm25, rank, own, own_rank = (
            _stacked(arrays, padding) for arrays, padding in zip(zip(*parts, strict=True), _PADDINGS, strict=True)
        )
        return documents, source, {"bm25": bm25, "bm25_rank": rank}, {"bm25": own, "bm25_rank": own_rank}


_PADDINGS: Final = (PADDING, 0, np.nan, np.nan, np.nan, np.nan)


def _stacked(arrays: Sequence[NDArray[Any]], padding: float) -> NDArray[Any]:
    width = max(array.shape[1] for array in arrays)
    wide = [np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=padding) for a in arrays]
    return np.concatenate(wide)
