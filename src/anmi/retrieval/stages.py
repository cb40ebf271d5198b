"""The two stages that find candidates, each as a function of a shard that worker processes can be sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import SOURCES, Candidates
from anmi.retrieval import pool, random
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.dense import DenseIndex, similarities_and_ranks
from anmi.retrieval.kin import Kin


class Asked(NamedTuple):
    """Queries of one shard.

    Attributes
    ----------
    query_ids, texts
        Of Q queries.
    positives
        Their relevant documents, int32 [Q, P], padded with -1.
    own
        The document that each query is itself or has the text of, int32 [Q], -1 where there is none.
    """

    query_ids: list[str]
    texts: list[str]
    positives: NDArray[np.int32]
    own: NDArray[np.int32]


@dataclass(frozen=True)
class Search:
    """Retrieves the best documents by BM25, without positives, the query itself, and duplicates of these.

    Attributes
    ----------
    index
        Of the corpus.
    group
        Of duplicates, for each document; see :func:`anmi.retrieval.pool.duplicate_groups`.
    depth
        Candidates per query.
    """

    index: BM25Index
    group: NDArray[np.int32]
    depth: int

    def __call__(self, asked: Asked) -> Candidates:
        """Return the candidates of a shard."""
        excluded = _excluded(asked.positives, asked.own, self.group)
        found = self.index.retrieve(asked.texts, self.depth + excluded.shape[1], asked.positives)
        allowed = pool.compacted(pool.without(found.documents, excluded), found.scores, found.ranks)
        documents, scores, ranks = (array[:, : self.depth] for array in allowed)
        filled = documents >= 0
        return Candidates(
            query_ids=np.array(asked.query_ids, dtype=np.str_),
            positives=asked.positives,
            documents=documents.astype(np.int32),
            source=np.where(filled, SOURCES["bm25"], 0).astype(np.uint8),
            columns={"bm25": np.where(filled, scores, np.nan), "bm25_rank": np.where(filled, ranks, np.nan)},
            positive_columns={"bm25": found.given_scores, "bm25_rank": found.given_ranks},
        )


@dataclass(frozen=True)
class Merge:
    """Adds what an encoder finds and what is drawn at random, with all scores and ranks of every candidate.

    What was retrieved comes best by fused rank first, and what was only drawn at random behind it: the first columns,
    which later stages judge, are the same with and without random documents.

    Attributes
    ----------
    bm25_index, dense_index
        Of the corpus.
    document_embeddings
        Unit vectors, float32 [N, D].
    query_embeddings, own, rows, texts
        Unit vectors of all queries, float32 [T, D]; the document that each is itself or has the text of, int32 [T], -1
        where there is none; and row and text of each query identifier.
    group, kin
        Duplicates and kin of documents.
    depth, random
        Documents per query of the encoder, and at random.
    seed
        Of the run.
    """

    bm25_index: BM25Index
    dense_index: DenseIndex
    document_embeddings: NDArray[np.float32]
    query_embeddings: NDArray[np.float32]
    own: NDArray[np.int32]
    rows: dict[str, int]
    texts: dict[str, str]
    group: NDArray[np.int32]
    kin: Kin
    depth: int
    random: int
    seed: int

    def __call__(self, block: Candidates) -> Candidates:
        """Return a block of candidates by BM25 with the others."""
        ids = block.query_ids.tolist()
        texts = [self.texts[query] for query in ids]
        rows = [self.rows[query] for query in ids]
        vectors = np.asarray(self.query_embeddings)[rows]
        excluded = _excluded(block.positives, self.own[rows], self.group)
        retrieved, documents, source = self._together(block, ids, vectors, excluded)
        approximate = None if self.dense_index.settings["kind"] == "flat" else retrieved
        bm25, bm25_rank = self.bm25_index.scores_and_ranks(texts, documents)
        cosine, dense_rank = similarities_and_ranks(vectors, self.document_embeddings, documents, approximate)
        own = similarities_and_ranks(vectors, self.document_embeddings, block.positives, approximate)
        fused = pool.fused_rank(bm25_rank, dense_rank)
        order = np.lexsort((documents, -fused, source == SOURCES["random"], documents < 0), axis=1)

        def ordered(values: NDArray[Any]) -> NDArray[Any]:
            return np.take_along_axis(values, order, axis=1)

        columns = {"bm25": bm25, "bm25_rank": bm25_rank, "dense": cosine, "dense_rank": dense_rank, "fused": fused}
        columns["kin"] = np.where(documents < 0, np.nan, self.kin.kinds(block.positives, documents)).astype(np.float32)
        return Candidates(
            query_ids=block.query_ids,
            positives=block.positives,
            documents=ordered(documents),
            source=ordered(source),
            columns={name: ordered(values) for name, values in columns.items()},
            positive_columns=block.positive_columns | {"dense": own[0], "dense_rank": own[1]},
        )

    def _together(
        self, block: Candidates, ids: list[str], vectors: NDArray[np.float32], excluded: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
        """Return what the encoder found, and the documents of all sources with their bit-masks."""
        retrieved, _ = self.dense_index.search(vectors, self.depth + excluded.shape[1])
        dense = pool.compacted(pool.without(retrieved, excluded))[0][:, : self.depth]
        documents, source = pool.union(block.documents, block.source, dense.astype(np.int32), "dense")
        drawn = random.draw(self.seed, ids, excluded, len(self.document_embeddings), self.random)
        return retrieved, *pool.union(documents, source, drawn, "random")


def _excluded(positives: NDArray[np.int32], own: NDArray[np.int32], group: NDArray[np.int32]) -> NDArray[np.int32]:
    """Documents that are never candidates: positives, the query itself, and all of the same text, int32 [Q, K]."""
    return pool.with_duplicates(np.concatenate([positives, own[:, None]], axis=1), group)
