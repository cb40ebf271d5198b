"""Nodes of dense retrieval and of the merged block."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import CandidateShards
from anmi.engine import IN_PROCESS, EngineParams, map_blocks, running
from anmi.pipelines.dense.params import DenseParams
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.dense import DenseIndex
from anmi.store import Store


def encode_collection(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    encoder: str,
    params: DenseParams,
    store: Store,
    engine: EngineParams = IN_PROCESS,
) -> dict[str, Any]:
    """Encode documents and the queries to be mined to unit vectors; what the store holds is not computed again."""
    from anmi.corpus.mined import to_mine
    from anmi.corpus.texts import document_texts
    from anmi.retrieval.encoders import encode, fingerprint
    from anmi.retrieval.encoding import Encoding, opened
    from anmi.retrieval.prompts import prompts_of

    place = (params.encoder or encoder, store.path / "models", params.max_length, params.prompts)
    model = opened(*place)
    store.run = running(engine).ordered

    def vectors(texts: list[str], role: Literal["query", "document"]) -> NDArray[np.float32]:
        description = f"encoding {'queries' if role == 'query' else 'documents'}"
        batch = Encoding(*place, params.precision, params.batch_size, role)
        sent = batch if batch.worth_sending or engine.ray_gpus else None
        return encode(model, texts, store, params.precision, params.batch_size, description, role, sent)

    return {
        "document_embeddings": vectors(document_texts(corpus), "document"),
        "query_embeddings": vectors(to_mine(queries).text.tolist(), "query"),
        "encoder_info": {
            "encoder": params.encoder or encoder,
            "fingerprint": fingerprint(model),
            "prompts": prompts_of(model),
        },
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
    engine: EngineParams = IN_PROCESS,
) -> CandidateShards:
    """Merge the sources into one block, every member with all scores and ranks and whether it is kin to a positive."""
    from anmi.corpus.mined import to_mine
    from anmi.retrieval import pool
    from anmi.retrieval.kin import Kin
    from anmi.retrieval.stages import Merge

    asked, ids = to_mine(queries), corpus.document_id.tolist()
    merge = Merge(
        bm25_index=bm25_index,
        dense_index=dense_index,
        document_embeddings=document_embeddings,
        query_embeddings=query_embeddings,
        own=pool.own_documents(asked, dict(zip(ids, range(len(ids)), strict=True))),
        rows=dict(zip(asked.query_id, range(len(asked)), strict=True)),
        texts=dict(zip(asked.query_id, asked.text, strict=True)),
        group=pool.duplicate_groups(ids, duplicates),
        kin=Kin.from_table(kin, ids, duplicates),
        depth=params.depth,
        random=params.random,
        seed=seed,
    )
    return map_blocks(engine, merge, bm25_candidates, description="merging")
