"""What training saw of the documents that answer a query: quality on what it never saw is what a user gets.

A model scores queries whose answer was a positive in training partly by memory. So every figure of a run is also given
for the test queries by what training saw, and the headline is about those whose documents it never saw as a positive.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pandas as pd

ALL: Final = "all"
SEEN: Final = "seen"
UNSEEN: Final = "unseen"
ADDED: Final = "added"
BUCKETS: Final = (SEEN, UNSEEN, ADDED)
# Below it a mean is hardly known: nDCG@10 of a query has a standard deviation of about 0.4, so the mean of 20 has a
# standard error of 0.09, about as much as separates the systems.
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
        ``query_id, positive_id`` of what was trained on, which holds promoted positives besides the labels.

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
    asked: Collection[str], qrels: pd.DataFrame, positives: Collection[str], held_out: Collection[str] = ()
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
    held_out
        Documents that training did not see at all, not even by a pseudo-query; they stand for those that are added to
        a collection after training. Empty where there are none.

    Returns
    -------
    pandas.Series
        By query id, in the order asked: ``seen`` where one of its relevant documents was a positive, else ``added``
        where all of them are held out, else ``unseen``.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": ["a", "b", "b", "c"], "document_id": ["x", "x", "y", "z"], "relevance": 1})
    >>> buckets(["a", "b", "c"], qrels, positives={"y"}, held_out={"x"}).to_dict()
    {'a': 'added', 'b': 'seen', 'c': 'unseen'}
    """
    ids = pd.Index(list(asked), name="query_id")
    own = qrels[qrels.query_id.isin(ids) & (qrels.relevance > 0)]
    seen = ids.isin(own.loc[own.document_id.isin(set(positives)), "query_id"])
    labelled = ids.isin(own.query_id)
    known = ids.isin(own.loc[~own.document_id.isin(set(held_out)), "query_id"])
    found = pd.Series(UNSEEN, index=ids, name="bucket", dtype=object)
    found[labelled & ~known] = ADDED
    found[seen] = SEEN
    return found
