"""What training saw of the documents that answer a query.

A model answers queries whose documents are ``labelled``, that is positives of training queries,
partly by memory. Of ``unlabelled`` documents training has no label, and yet it may know them:
adaptation reads the whole corpus (*transductive*), and most of them are the positives of
pseudo-queries. So some documents are held out of all that mines and trains, and show as ``new``
what becomes of documents that come later. Every figure of a run is also given for the test queries
by these three. Where so few test queries have a label that pseudo-queries are measured beside
them, those are the bucket ``pseudo``, and of no other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pandas as pd

ALL: Final = "all"
LABELLED: Final = "labelled"
UNLABELLED: Final = "unlabelled"
NEW: Final = "new"
PSEUDO: Final = "pseudo"
BUCKETS: Final = (LABELLED, UNLABELLED, NEW, PSEUDO)
# Below it a mean is hardly known: nDCG@10 of a query has a standard deviation of about 0.4, so the
# mean of 20 has a standard error of 0.09, about as much as separates the systems.
FEW: Final = 20


def trained_positives(
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    splits: Collection[str],
    training_rows: pd.DataFrame | None = None,
) -> set[str]:
    """Return the documents that were positives in training.

    Parameters
    ----------
    queries
        ``query_id, split``; without the training queries whose labels were left unused.
    qrels
        ``query_id, document_id, relevance``.
    splits
        Those trained on, such as train and dev.
    training_rows
        ``query_id, positive_id`` of what was trained on, which holds promoted positives besides the
        labels.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["a", "b"], "split": ["train", "test"]})
    >>> qrels = pd.DataFrame({"query_id": ["a", "b"], "document_id": ["x", "y"], "relevance": 1})
    >>> trained_positives(queries, qrels, ["train"])
    {'x'}
    """
    trained = queries.loc[queries.split.isin(list(splits)), "query_id"]
    is_positive = qrels.query_id.isin(trained) & (qrels.relevance > 0)
    positives = set(qrels.loc[is_positive, "document_id"])
    if training_rows is not None:
        positives |= set(training_rows.loc[training_rows.query_id.isin(trained), "positive_id"])
    return positives


def buckets(
    query_ids: Collection[str],
    qrels: pd.DataFrame,
    positives: Collection[str],
    new: Collection[str] = (),
) -> pd.Series[str]:
    """Tell what training saw of each query's relevant documents.

    Parameters
    ----------
    query_ids
        Of the test queries, each once.
    qrels
        ``query_id, document_id, relevance``; rows of other queries do not count.
    positives
        Documents that were positives in training, see :func:`trained_positives`.
    new
        Documents that neither mining nor training saw, see
        :func:`anmi.corpus.related.new_documents`.

    Returns
    -------
    pandas.Series
        By query id, in their order: ``labelled`` where one of its relevant documents was a
        positive, else ``new`` where all of them are new, else ``unlabelled``.

    Examples
    --------
    >>> pairs = {"query_id": ["a", "b", "b", "c"], "document_id": ["x", "x", "y", "z"]}
    >>> qrels = pd.DataFrame(pairs).assign(relevance=1)
    >>> buckets(["a", "b", "c"], qrels, positives={"y"}, new={"x"}).to_dict()
    {'a': 'new', 'b': 'labelled', 'c': 'unlabelled'}
    """
    ids = pd.Index(list(query_ids), name="query_id")
    relevant = qrels[qrels.query_id.isin(ids) & (qrels.relevance > 0)]
    is_labelled = ids.isin(relevant.loc[relevant.document_id.isin(set(positives)), "query_id"])
    has_older = ids.isin(relevant.loc[~relevant.document_id.isin(set(new)), "query_id"])
    bucket = pd.Series(UNLABELLED, index=ids, name="bucket", dtype=object)
    bucket[ids.isin(relevant.query_id) & ~has_older] = NEW
    bucket[is_labelled] = LABELLED
    return bucket
