"""Nodes of lexical retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from anmi.candidates import CandidateShards
from anmi.corpus.difference import EVERYTHING
from anmi.engine import IN_PROCESS, EngineParams, make_blocks
from anmi.pipelines.bm25.params import BM25Params
from anmi.retrieval.bm25 import BM25Index


def build_bm25_index(corpus: pd.DataFrame, info: dict[str, Any], params: BM25Params) -> BM25Index:
    """Tokenise and index the corpus."""
    from anmi.corpus.texts import document_texts
    from anmi.retrieval.bm25 import BM25Index

    return BM25Index.build(
        document_texts(corpus),
        language=info["language"],
        kind=params.tokenizer,
        engine=params.engine,
        k1=params.k1,
        b=params.b,
        method=params.method,
    )


def search_bm25(
    index: BM25Index,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    duplicates: pd.DataFrame,
    params: BM25Params,
    engine: EngineParams = IN_PROCESS,
    changes: Mapping[str, Any] = EVERYTHING,
) -> CandidateShards:
    """Retrieve the best documents of every query to be mined, without positives, itself and their copies."""
    from anmi.corpus.mined import to_mine
    from anmi.retrieval import pool
    from anmi.retrieval.stages import Asked, Search

    position = dict(zip(corpus.document_id, range(len(corpus)), strict=True))
    asked = to_mine(queries)
    asked = asked[asked.query_id.isin(qrels.query_id)]
    if changes["queries"] is not None:
        asked = asked[asked.query_id.isin(changes["queries"])]
    search = Search(index, pool.duplicate_groups(corpus.document_id.tolist(), duplicates), params.depth)
    shards = []
    for start in range(0, len(asked), params.shard):
        part = asked.iloc[start : start + params.shard]
        ids = part.query_id.tolist()
        own = pool.own_documents(part, position)
        shards.append(Asked(ids, part.text.tolist(), pool.positives_of(ids, qrels, position), own))
    return make_blocks(engine, search, shards, description="BM25", total=len(asked))
