"""Nodes of lexical retrieval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from anmi.candidates import SOURCES, Candidates, CandidateShards
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
) -> CandidateShards:
    """Retrieve the best documents of every training query, without its positives and their duplicates."""
    from tqdm import tqdm

    from anmi.retrieval import pool

    position = dict(zip(corpus.document_id, range(len(corpus)), strict=True))
    train = queries[(queries.split == "train") & queries.query_id.isin(qrels.query_id)]
    group = pool.duplicate_groups(corpus.document_id.tolist(), duplicates)

    def blocks() -> Iterator[Candidates]:
        with tqdm(total=len(train), desc="BM25", unit="query", delay=2) as bar:
            for start in range(0, len(train), params.shard):
                part = train.iloc[start : start + params.shard]
                ids, texts = part.query_id.tolist(), part.text.tolist()
                positives = pool.positives_of(ids, qrels, position)
                excluded = pool.with_duplicates(positives, group)
                found = index.retrieve(texts, params.depth + excluded.shape[1], positives)
                allowed = pool.compacted(pool.without(found.documents, excluded), found.scores, found.ranks)
                documents, scores, ranks = (array[:, : params.depth] for array in allowed)
                filled = documents >= 0
                source = np.where(filled, SOURCES["bm25"], 0).astype(np.uint8)
                yield Candidates(
                    query_ids=np.array(ids, dtype=np.str_),
                    positives=positives,
                    documents=documents.astype(np.int32),
                    source=source,
                    columns={"bm25": np.where(filled, scores, np.nan), "bm25_rank": np.where(filled, ranks, np.nan)},
                    positive_columns={"bm25": found.given_scores, "bm25_rank": found.given_ranks},
                )
                bar.update(len(part))

    return CandidateShards(blocks)
