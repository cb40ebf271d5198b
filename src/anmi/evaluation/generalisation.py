"""What training saw of the documents that answer a query: quality on what nobody labelled is what a user gets.

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
    found = set(qrels.loc[qrels.query_id.isin(trained) & (qrels.relevance > 0), "document_id"])
    if training_rows is not None:
        found |= set(training_rows.loc[training_rows.query_id.isin(trained), "positive_id"])
    return found


def buckets(
    asked: Collection[str],
    qrels: pd.DataFrame,
    positives: Collection[str],
    new: Collection[str] = (),
) -> pd.Series[str]:
    """Tell what training saw of each query's relevant documents.

    Parameters
    ----------
    asked
        Ids of the test queries, each once.
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
        By query id, in the order asked: ``labelled`` where one of its relevant documents was a
        positive, else ``new`` where all of them are new, else ``unlabelled``.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": ["a", "b", "b", "c"], "document_id": ["x", "x", "y", "z"], "relevance": 1})
    >>> buckets(["a", "b", "c"], qrels, positives={"y"}, new={"x"}).to_dict()
    {'a': 'new', 'b': 'labelled', 'c': 'unlabelled'}
    """
    ids = pd.Index(list(asked), name="query_id")
    own = qrels[qrels.query_id.isin(ids) & (qrels.relevance > 0)]
    named = ids.isin(own.loc[own.document_id.isin(set(positives)), "query_id"])
    known = ids.isin(own.loc[~own.document_id.isin(set(new)), "query_id"])
    found = pd.Series(UNLABELLED, index=ids, name="bucket", dtype=object)
    found[ids.isin(own.query_id) & ~known] = NEW
    found[named] = LABELLED
    return found
