"""The weights of a search from the tables of a run: what dev queries found, and their labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import PADDING
from anmi.evaluation.retrieval import Ranking, run_table, side_by_side
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import Ranked, fuse
from anmi.search.weights import FittedWeights, fit_weights

BM25: Final = "bm25"


def fit_on_dev(
    dev_run: pd.DataFrame,
    bm25: BM25Index,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    positives: Collection[str],
    spreads: Mapping[str, float],
    depth: int,
    seed: int,
) -> FittedWeights:
    """Fit the weights on the queries of a run.

    Parameters
    ----------
    dev_run
        ``retriever, query_id, document_id, score, rank``: what retrievers found that were not trained on these queries.
        May be empty: all parts then count the same.
    bm25, corpus
        The index and the documents that were searched.
    queries, qrels
        Those of the run among others.
    positives
        Ids of the documents that training saw as positives.
    spreads
        By retriever, see :class:`anmi.search.HybridSearch`.
    depth
        Documents of each part that are fused.
    seed
        Of the resampling.
    """
    place = dict(zip(corpus.document_id, range(len(corpus)), strict=True))
    run = dev_run[dev_run["rank"] <= depth]
    asked = queries[queries.query_id.isin(run.query_id)].drop_duplicates("query_id")
    truth = qrels[qrels.query_id.isin(asked.query_id) & qrels.document_id.isin(place) & (qrels.relevance > 0)]
    asked = asked[asked.query_id.isin(truth.query_id)]
    if asked.empty:
        return FittedWeights.unknown({BM25: 0, **spreads})
    number = dict(zip(asked.query_id, range(len(asked)), strict=True))
    ranking = Ranking.of(asked, truth, corpus.document_id.tolist(), depth)
    lists, units = _with_bm25(bm25, asked, ranking, run, spreads)
    rows, documents = truth.query_id.map(number).to_numpy(np.int64), truth.document_id.map(place).to_numpy(np.int64)
    known = np.bincount(rows, truth.document_id.isin(positives).to_numpy(float), minlength=len(asked)) > 0
    return fit_weights(
        lists, units, side_by_side(rows, documents, len(asked)), _beside(rows, truth.relevance, len(asked)), ~known,
        seed=seed,
    )  # fmt: skip


def _with_bm25(
    bm25: BM25Index, asked: pd.DataFrame, ranking: Ranking, run: pd.DataFrame, spreads: Mapping[str, float]
) -> tuple[dict[str, Ranked], dict[str, Any]]:
    """Return what each part found, and in what units its scores are."""
    found, scores, spread = bm25.search_and_spread(asked.text.tolist(), ranking.searched)
    numbers, places = (dict(zip(ids, range(len(ids)), strict=True)) for ids in (asked.query_id, ranking.document_ids))
    lists = {BM25: Ranked(*ranking.lists(found, scores))}
    lists |= {name: lists_of(run[run.retriever == name], numbers, places) for name in spreads}
    return lists, {BM25: spread, **spreads}


def lists_of(run: pd.DataFrame, queries: Mapping[str, int], documents: Mapping[str, int]) -> Ranked:
    """Return the lists of a run, ``query_id, document_id, score, rank``, by the numbers of queries and documents.

    Rows of other queries or documents are left out.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["b", "a"], "score": [0.5, 0.75], "rank": [2, 1]})
    >>> [part.tolist() for part in lists_of(run, {"q": 0}, {"a": 0, "b": 1})]
    [[[0, 1]], [[0.75, 0.5]]]
    """
    run = run[run.query_id.isin(queries) & run.document_id.isin(documents)].sort_values("rank", kind="stable")
    rows = np.asarray(run.query_id.map(queries), np.int64)
    found = side_by_side(rows, np.asarray(run.document_id.map(documents), np.int64), len(queries))
    return Ranked(found, _beside(rows, run.score, len(queries)))


def _beside(rows: NDArray[np.int64], values: Any, count: int) -> NDArray[np.float32]:
    """Values in the places that :func:`anmi.evaluation.retrieval.side_by_side` gives their documents; 0 in padding."""
    numbers = side_by_side(rows, np.arange(len(rows)), count)
    given = np.append(np.asarray(values, np.float32), np.float32(0))
    return np.where(numbers == PADDING, 0, given[numbers]).astype(np.float32)


def with_bm25(
    run: pd.DataFrame,
    bm25: BM25Index,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    how: Mapping[str, Any],
    k: int,
) -> pd.DataFrame:
    """Return the run of a hybrid made of its retrievers' runs.

    Parameters
    ----------
    run
        ``retriever, query_id, document_id, score, rank``.
    bm25, corpus
        The index and the documents that were searched.
    queries, qrels
        Those of the run among others.
    how
        ``method``, ``weights``, ``depth`` and ``spreads``, see :class:`anmi.search.HybridSearch`.
    k
        Documents per query.
    """
    asked = queries[queries.query_id.isin(run.query_id)].drop_duplicates("query_id")
    ids = corpus.document_id.tolist()
    ranking = Ranking.of(asked, qrels, ids, how["depth"])
    lists, units = _with_bm25(bm25, asked, ranking, run[run["rank"] <= how["depth"]], how["spreads"])
    fused = fuse(lists, k, units, how["method"], how["weights"])
    return run_table(ranking.query_ids, ids, fused.documents, fused.scores)
