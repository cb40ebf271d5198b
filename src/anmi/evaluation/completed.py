"""Judgments completed by what is known to be relevant beyond the labels: for scoring, never mining or training."""

from __future__ import annotations

import pandas as pd


def completed_judgments(qrels: pd.DataFrame, equivalents: pd.DataFrame) -> pd.DataFrame:
    """Return the labels with what else is known to be relevant: own documents 2, the others 1.

    Every label above 0 is an own document; equivalents are relevant though no label says so.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": ["q"], "document_id": ["own"], "relevance": [1]})
    >>> same = pd.DataFrame({"query_id": ["q", "other"], "document_id": ["twin", "x"]})
    >>> completed_judgments(qrels, same).values.tolist()
    [['q', 'own', 2], ['q', 'twin', 1]]
    """
    pair = ["query_id", "document_id"]
    own = qrels.loc[qrels.relevance > 0, pair].assign(relevance=2)
    known = equivalents.loc[equivalents.query_id.isin(own.query_id), pair].assign(relevance=1)
    return pd.concat([own, known], ignore_index=True).drop_duplicates(pair, ignore_index=True)
