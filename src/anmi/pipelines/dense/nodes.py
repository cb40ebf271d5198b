"""Nodes of dense retrieval and of the merged block."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import SOURCES, Candidates, CandidateShards
from anmi.pipelines.dense.params import DenseParams
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.dense import DenseIndex
from anmi.store import Store


def encode_collection(
    corpus: pd.DataFrame, queries: pd.DataFrame, encoder: str, params: DenseParams, store: Store
) -> dict[str, Any]:
    """Encode documents and training queries to unit vectors; what the store holds is not computed again."""
    from anmi.corpus.texts import document_texts
    from anmi.retrieval.encoders import encode, fingerprint, load_encoder

    model = load_encoder(params.encoder or encoder, store.path / "models", params.max_length)
    train = queries[queries.split == "train"]

    def vectors(texts: list[str], role: Literal["query", "document"], prompt: str) -> NDArray[np.float32]:
        description = "encoding queries" if role == "query" else "encoding documents"
        return encode(model, texts, store, params.precision, params.batch_size, prompt, description, role)

    return {
        "document_embeddings": vectors(document_texts(corpus), "document", params.prompt_document),
        "query_embeddings": vectors(train.text.tolist(), "query", params.prompt_query),
        "encoder_info": {"encoder": params.encoder or encoder, "fingerprint": fingerprint(model)},
    }


def build_dense_index(
    corpus: pd.DataFrame, embeddings: NDArray[np.float32], encoder_info: dict[str, Any], params: DenseParams
) -> DenseIndex:
    """Index the document vectors."""
    from anmi.retrieval.dense import DenseIndex

    return DenseIndex.build(embeddings, corpus.document_id.tolist(), params.index, encoder_info["fingerprint"])


def merge_candidates(
    bm25_candidates: CandidateShards,
    bm25_index: BM25Index,
    dense_index: DenseIndex,
    document_embeddings: NDArray[np.float32],
    query_embeddings: NDArray[np.float32],
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    duplicates: pd.DataFrame,
    kin: pd.DataFrame,
    params: DenseParams,
    seed: int,
) -> CandidateShards:
    """Merge the sources into one block, every member with all scores and ranks and whether it is kin to a positive.

    What was retrieved comes best by fused rank first, and what was only drawn at random behind it: the first columns,
    which later stages judge, are the same with and without random documents.
    """
    from anmi.retrieval import pool, random
    from anmi.retrieval.dense import similarities_and_ranks
    from anmi.retrieval.kin import Kin

    train = queries[queries.split == "train"]
    row_of = pd.Series(np.arange(len(train)), index=train.query_id)
    text_of = train.set_index("query_id").text
    group = pool.duplicate_groups(corpus.document_id.tolist(), duplicates)
    related = Kin.from_table(kin, corpus.document_id.tolist(), duplicates)

    def merge(block: Candidates) -> Candidates:
        ids = block.query_ids.tolist()
        vectors = np.asarray(query_embeddings)[row_of.loc[ids].to_numpy()]
        excluded = pool.with_duplicates(block.positives, group)
        retrieved, _ = dense_index.search(vectors, params.depth + excluded.shape[1])
        dense = pool.compacted(pool.without(retrieved, excluded))[0][:, : params.depth]
        documents, source = pool.union(block.documents, block.source, dense.astype(np.int32), "dense")
        drawn = random.draw(seed, ids, excluded, len(corpus), params.random)
        documents, source = pool.union(documents, source, drawn, "random")
        approximate = None if dense_index.settings["kind"] == "flat" else retrieved
        texts = text_of.loc[ids].tolist()
        bm25, bm25_rank = bm25_index.scores_and_ranks(texts, documents)
        cosine, dense_rank = similarities_and_ranks(vectors, document_embeddings, documents, approximate)
        own = similarities_and_ranks(vectors, document_embeddings, block.positives, approximate)
        fused = pool.fused_rank(bm25_rank, dense_rank)
        order = np.lexsort((documents, -fused, source == SOURCES["random"], documents < 0), axis=1)

        def ordered(values: NDArray[Any]) -> NDArray[Any]:
            return np.take_along_axis(values, order, axis=1)

        columns = {"bm25": bm25, "bm25_rank": bm25_rank, "dense": cosine, "dense_rank": dense_rank, "fused": fused}
        columns["kin"] = np.where(documents < 0, np.nan, related.kinds(block.positives, documents)).astype(np.float32)
        return Candidates(
            query_ids=block.query_ids,
            positives=block.positives,
            documents=ordered(documents),
            source=ordered(source),
            columns={name: ordered(values) for name, values in columns.items()},
            positive_columns=block.positive_columns | {"dense": own[0], "dense_rank": own[1]},
        )

    return bm25_candidates.map(merge)
