"""What systems are asked: test queries with labels, or the pseudo-queries that stand in for them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import pandas as pd

from anmi.adaptation.stand_in import unlabelled_splits, with_pseudo_tests

KindOfQueries = Literal["labels", "pseudo_queries"]


class Asked(NamedTuple):
    """What is asked, with the documents and labels that belong to it.

    Attributes
    ----------
    corpus
        Without what pseudo-queries were made of, where they stand in; else as it was.
    queries
        Those of the split that have a label.
    qrels
        All.
    kind
        ``labels`` or ``pseudo_queries``, which are a weaker proof.
    """

    corpus: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame
    kind: KindOfQueries


def kind_of_queries(queries: pd.DataFrame, qrels: pd.DataFrame, split: str) -> KindOfQueries:
    """Return what the queries of a split are."""
    return "pseudo_queries" if split in unlabelled_splits(queries, qrels) else "labels"


def asked_of(
    corpus: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame, pseudo_queries: pd.DataFrame | None, split: str
) -> Asked:
    """Return the queries of a split; where none has a label, those made of the documents held out for it."""
    kind = kind_of_queries(queries, qrels, split)
    if kind == "pseudo_queries" and pseudo_queries is not None:
        corpus, queries, qrels = with_pseudo_tests(corpus, queries, qrels, pseudo_queries, [split])
    found = queries[(queries.split == split) & queries.query_id.isin(qrels.query_id)]
    return Asked(corpus, found, qrels, kind)
