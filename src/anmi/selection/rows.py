"""From selected candidates to rows that training and other programs read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import OPEN, PADDING, SOURCES, Candidates, CandidateShards

_SCORES: Final = ("bm25", "bm25_rank", "dense", "dense_rank", "cross", "p_relevant", "elo", "elo_se", "gap_se")


def training_rows(
    shards: CandidateShards, document_ids: Sequence[str], document_texts: Sequence[str], query_texts: dict[str, str]
) -> pd.DataFrame:
    """Return one row per kept (query, positive), its negatives as lists of equal length, best first.

    Parameters
    ----------
    shards
        After selection, one row per (query, positive).
    document_ids, document_texts
        By document index.
    query_texts
        By query id.

    Returns
    -------
    pandas.DataFrame
        ``query_id, query, query_weight, positive_id, positive, positive_ids, negative_ids, negatives, weights,
        sources``, and for every score the lists ``negative_<score>`` beside the number ``positive_<score>``.
    """
    names = np.array(document_ids, dtype=object)
    texts = np.array(document_texts, dtype=object)
    tables = [_rows(block, names, texts, query_texts) for block in shards]
    # A table without rows has columns of no type, and would take the others' from them.
    return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)


def _rows(block: Candidates, names: NDArray[Any], texts: NDArray[Any], query_texts: dict[str, str]) -> pd.DataFrame:
    block = block.take(block.query_verdict == OPEN)
    row, slot = np.nonzero(block.negatives)
    if len(row):
        order = np.lexsort((block.columns["choice"][row, slot], row))
        row, slot = row[order], slot[order]
    cuts = np.cumsum(np.bincount(row, minlength=len(block)))[:-1]

    def lists(values: NDArray[Any]) -> list[Any]:
        return [part.tolist() for part in np.split(values, cuts)] if len(block) else []

    own = block.positives[:, 0]
    known_row, known_slot = np.nonzero(block.positives != PADDING)
    known_cuts = np.cumsum(np.bincount(known_row, minlength=len(block)))[:-1]
    known = np.split(names[block.positives[known_row, known_slot]], known_cuts) if len(block) else []
    chosen = block.documents[row, slot]
    bits = block.source[row, slot]
    source_names = np.array(
        ["+".join(name for name, bit in SOURCES.items() if value & bit) for value in range(16)], dtype=object
    )
    table: dict[str, Any] = {
        "query_id": block.query_ids.tolist(),
        "query": [query_texts[str(query)] for query in block.query_ids],
        "query_weight": block.query_columns.get("weight", np.ones(len(block), np.float32)),
        "positive_id": names[own],
        "positive": texts[own],
        "positive_ids": [part.tolist() for part in known],
        "negative_ids": lists(names[chosen]),
        "negatives": lists(texts[chosen]),
        "weights": lists(block.weight[row, slot]),
        "sources": lists(source_names[bits]),
    }
    for score in _SCORES:
        if score in block.columns:
            table[f"negative_{score}"] = lists(block.columns[score][row, slot])
            if score in block.positive_columns:
                table[f"positive_{score}"] = block.positive_columns[score][:, 0]
    return pd.DataFrame(table)


def pair_rows(
    rows: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame, collection: str, language: str
) -> pd.DataFrame:
    """Return the rows that have negatives in the pair format of methods §1.

    Returns
    -------
    pandas.DataFrame
        ``query, positive_doc, hard_negatives, query_type, doc_type, source, language``; types and source are those of
        the collection's metadata where it has them.
    """
    kept = rows[rows.negative_ids.map(len) > 0]

    def metadata(table: pd.DataFrame, key: str, ids: pd.Series, name: str, default: str) -> list[str]:
        values = dict(zip(table[key], table.metadata, strict=True))
        return [str(json.loads(values[i] or "{}").get(name) or default) for i in ids]

    return pd.DataFrame({
        "query": kept["query"].to_numpy(),
        "positive_doc": kept["positive"].to_numpy(),
        "hard_negatives": kept.negatives.tolist(),
        "query_type": metadata(queries, "query_id", kept.query_id, "query_type", "query"),
        "doc_type": metadata(corpus, "document_id", kept.positive_id, "doc_type", "document"),
        "source": metadata(queries, "query_id", kept.query_id, "source", collection),
        "language": language,
    })  # fmt: skip
