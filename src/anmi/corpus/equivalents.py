"""Documents that are in truth relevant though no label says so. For scoring only, never for mining."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from scipy import sparse

from anmi.corpus.columns import containing, taken
from anmi.corpus.types import empty

_BLOCK = 2048


def same_text(queries: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return for every query the documents labelled for other queries with the same normalised text.

    Parameters
    ----------
    queries
        ``query_id, normalised``.
    qrels
        ``query_id, document_id``.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id``.
    """
    labelled = qrels[["query_id", "document_id"]].merge(queries[["query_id", "normalised"]], on="query_id")
    both = queries[["query_id", "normalised"]].merge(labelled[["normalised", "document_id"]], on="normalised")
    return _without_labelled(both[["query_id", "document_id"]].drop_duplicates(), qrels)


def superset_of_triples(corpus: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return for every query the documents that state all triples of one of its own documents.

    Parameters
    ----------
    corpus
        ``document_id, metadata``; a document's facts are ``metadata.triples``, a list of [head, relation, tail].
    qrels
        ``query_id, document_id``.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id``; empty where no document has triples.
    """
    facts = _triples(corpus)
    if facts is None or qrels.empty:
        return empty("query_id", "document_id")
    document_ids = corpus["document_id"].to_numpy(dtype=object)
    row = pd.Series(np.arange(len(corpus)), index=corpus["document_id"])
    names, query = np.unique(qrels["query_id"].to_numpy(dtype=object), return_inverse=True)
    own, place = np.unique(row.loc[qrels["document_id"]].to_numpy(), return_inverse=True)
    membership = sparse.csr_matrix((np.ones(len(place), np.int32), (query, place)), (len(names), len(own)))
    needed = facts[own]
    size = np.asarray(needed.sum(axis=1)).ravel()
    transposed = facts.T.tocsc()
    parts = []
    for start in range(0, len(own), _BLOCK):
        shared = (needed[start : start + _BLOCK] @ transposed).tocoo()
        complete = shared.data == size[start + shared.row]
        found = np.ones(int(complete.sum()), np.int32), (shared.row[complete], shared.col[complete])
        parts.append(sparse.csr_matrix(found, shared.shape))
    stating = (membership @ sparse.vstack(parts)).tocsr()
    stating.sort_indices()
    pairs = {
        "query_id": np.repeat(names, np.diff(stating.indptr)),
        "document_id": document_ids[stating.indices],
    }
    return _without_labelled(pd.DataFrame(pairs, dtype="str"), qrels)


def _triples(corpus: pd.DataFrame) -> sparse.csr_matrix | None:
    """Return which document states which triple, int32 [N, T]; ``None`` where there are none."""
    number: dict[str, int] = {}
    rows: list[int] = []
    columns: list[int] = []
    telling = containing(corpus["metadata"], '"triples"')
    for index, text in zip(telling.tolist(), taken(corpus["metadata"], telling), strict=True):
        triples = json.loads(text).get("triples")
        if not isinstance(triples, list):
            continue
        for triple in {json.dumps(item) for item in triples}:
            rows.append(index)
            columns.append(number.setdefault(triple, len(number)))
    if not number:
        return None
    return sparse.csr_matrix((np.ones(len(rows), np.int32), (rows, columns)), (len(corpus), len(number)))


def _without_labelled(found: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    merged = found.merge(qrels[["query_id", "document_id"]], how="left", indicator=True)
    return merged.loc[merged["_merge"] == "left_only", ["query_id", "document_id"]].reset_index(drop=True)
