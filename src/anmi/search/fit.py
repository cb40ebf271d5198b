"""The weights of a search are fitted on the rankings of dev queries and their labels."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi import seeds
from anmi.candidates import PADDING
from anmi.corpus.related import hits_of
from anmi.evaluation.metrics import of_documents
from anmi.evaluation.retrieval import Ranking, run_table, side_by_side
from anmi.ragged import Bools, Float32s, Float64s, Int32s, Int64s, in_rows
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import Lists, Ranked, Spreads, aligned, comparable, equal, fuse, mixed

STREAM: Final = "search/weight"
BM25: Final = "bm25"
# Steps of the grid of weights of two parts, and of three, which has many more points.
STEPS: Final = 20
STEPS_OF_THREE: Final = 10
CUT: Final = 10
# Fewer queries about unlabelled documents say less than all dev queries together.
LEAST_UNLABELLED: Final = 30
_RESAMPLES: Final = 1000
_CELLS: Final = 4_000_000


def all_equal(parts: Iterable[str], queries: int = 0) -> dict[str, Any]:
    """Return what :func:`fit_weights` does, where queries are too few to choose: all parts count the same."""
    weights = equal(dict.fromkeys(parts, 0.0))
    return {
        "weights": weights,
        "low": dict.fromkeys(weights, 0.0),
        "high": dict.fromkeys(weights, 1.0),
        "queries": queries,
        "kind": "none",
        "curve": [],
        "ndcg@10": {},
    }


def grid(parts: int) -> Float64s:
    """Return weights that sum to 1, [W, parts]: in steps of 1/20 of two parts, of 1/10 of more.

    Examples
    --------
    >>> grid(2)[:2].tolist(), len(grid(3))
    ([[1.0, 0.0], [0.95, 0.05]], 66)
    """
    steps = STEPS if parts <= 2 else STEPS_OF_THREE
    products = itertools.product(range(steps + 1), repeat=parts - 1)
    points = [(steps - sum(others), *others) for others in products if sum(others) <= steps]
    return np.array(points) / steps


def fit_weights(
    lists: Lists,
    spreads: Spreads,
    labelled: Int32s,
    grades: Float32s,
    unlabelled: Bools,
    *,
    seed: int,
) -> dict[str, Any]:
    """Choose the weights with the best mean nDCG@10.

    Parameters
    ----------
    lists, spreads
        What Q queries found that no part was trained on; see :func:`anmi.retrieval.fusion.fuse`.
    labelled
        Their labelled documents, int32 [Q, P], padded with -1.
    grades
        Of these documents, float32 [Q, P]; above 0 is relevant.
    unlabelled
        [Q]; whether training saw none of the query's relevant documents as a positive. Where there
        are at least 30 of them, only they count: a retriever is better on documents that it was
        trained to find, and would get a weight that it does not deserve on all others.
    seed
        Of the resampling.

    Returns
    -------
    dict
        ``weights`` by part, in [0, 1], whose sum is 1; ``low`` and ``high``, 95 % bootstrap
        intervals over queries of the best weights, 0 and 1 without a query; ``queries``, how many
        the weights were fitted on, or were too few for it; ``kind``: ``unlabelled`` (of whose
        relevant documents training saw none as a positive), ``all`` where those are too few,
        ``none`` where there are too few queries; ``curve``, the mean nDCG@10 of these queries by
        weights; ``ndcg@10`` by part alone, and of the ``hybrid`` at the weights, empty without a
        query.

    Notes
    -----
    The curve is flat around its maximum, so that its best point moves with every query. The weights
    are the mean of the best points of 1,000 bootstrap samples of the queries (bagging). With few
    queries these lie all over the grid and their mean is drawn to its middle; a further pull
    towards equal weights cost more than it brought already at five queries on dev queries of four
    collections, and so did the best point itself.

    Examples
    --------
    >>> from anmi.retrieval.fusion import Ranked
    >>> right = Ranked(np.array([[1, 2]] * 90, np.int32), np.array([[2.0, 1.0]] * 90, np.float32))
    >>> wrong = Ranked(np.array([[3, 1]] * 90, np.int32), np.array([[2.0, 1.0]] * 90, np.float32))
    >>> truth, grades = np.full((90, 1), 1, np.int32), np.ones((90, 1), np.float32)
    >>> found = fit_weights({"bm25": wrong, "dense": right}, {}, truth, grades, np.ones(90, bool), seed=1)
    >>> found["weights"]["dense"] > 0.6, found["queries"], found["kind"]
    (True, 90, 'unlabelled')
    """
    chosen = (
        unlabelled if int(unlabelled.sum()) >= LEAST_UNLABELLED else np.ones(len(unlabelled), bool)
    )
    if not chosen.any():
        return all_equal(lists)
    lists = {name: part.of(chosen) for name, part in lists.items()}
    spreads = {
        name: spread if np.ndim(spread) == 0 else np.asarray(spread)[chosen]
        for name, spread in spreads.items()
    }
    measured = spreads, labelled[chosen], grades[chosen]
    points = grid(len(lists))
    values = ndcg_by_weights(lists, *measured, points)
    best = bagged(values, points, seed)
    weights = np.round(best.mean(axis=0), 3)
    # What rounding leaves is BM25's, the first part.
    weights[0] = round(1 - weights[1:].sum(), 3)
    reached = {
        name: ndcg_by_weights({name: part}, *measured, np.ones((1, 1))).mean()
        for name, part in lists.items()
    }
    reached["hybrid"] = ndcg_by_weights(lists, *measured, weights[None]).mean()
    chosen_weights, low, high = (
        dict(zip(lists, of.tolist(), strict=True))
        for of in (weights, *np.quantile(best, [0.025, 0.975], axis=0))
    )
    curve = zip(points.tolist(), values.mean(axis=1).tolist(), strict=True)
    return {
        "weights": chosen_weights,
        "low": low,
        "high": high,
        "queries": int(chosen.sum()),
        "kind": "unlabelled" if chosen is unlabelled else "all",
        "curve": [
            {"weights": dict(zip(lists, point, strict=True)), "ndcg@10": value}
            for point, value in curve
        ],
        "ndcg@10": {name: round(float(value), 4) for name, value in reached.items()},
    }


def ndcg_by_weights(
    lists: Lists,
    spreads: Spreads,
    labelled: Int32s,
    grades: Float32s,
    points: Float64s,
) -> Float64s:
    """Return nDCG@10 of each query by each of W weights [W, parts], [W, Q]; see :func:`fit_weights`.

    Linear gain, as in trec_eval; a query without a relevant document has 0.
    """
    union = aligned(lists)
    parts = list(comparable(union, lists, spreads).values())
    hidden = union.documents == PADDING
    gains = np.zeros(union.documents.shape)
    for document, grade in zip(labelled.T, np.maximum(grades, 0).T, strict=True):
        gains += np.where((union.documents == document[:, None]) & ~hidden, grade[:, None], 0)
    discounts = 1 / np.log2(np.arange(2, CUT + 2))
    relevance = np.where(labelled == PADDING, 0, np.maximum(grades, 0))
    top = -np.sort(-relevance)[:, :CUT]
    ideal = top @ discounts[: top.shape[1]]
    rows = []
    for weights in points.tolist():
        scores = np.where(hidden, -np.inf, mixed(weights, parts))
        order = np.argsort(-scores, kind="stable")[:, :CUT]
        reached = in_rows(gains, order)
        rows.append(reached @ discounts[: reached.shape[1]])
    return np.divide(
        np.array(rows), ideal, out=np.zeros((len(points), len(labelled))), where=ideal > 0
    )


def bagged(values: Float64s, points: Float64s, seed: int) -> Float64s:
    """Return the best weights of each of 1,000 bootstrap samples of queries, [1,000, parts].

    Parameters
    ----------
    values
        [W, Q], as :func:`ndcg_by_weights` returns them for ``points`` [W, parts].
    points
        Where several are best, their middle is taken.
    seed
        Of the resampling.
    """
    count = values.shape[1]
    rng = seeds.stream(seed, STREAM)
    step = max(1, min(_RESAMPLES, _CELLS // count))
    best = []
    for start in range(0, _RESAMPLES, step):
        drawn = rng.multinomial(
            count, np.full(count, 1 / count), size=min(step, _RESAMPLES - start)
        )
        means = values @ drawn.T / count
        is_best = means >= means.max(axis=0) - 1e-12
        best.append(is_best.T @ points / is_best.sum(axis=0)[:, None])
    return np.concatenate(best)


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
    least: int = 1,
) -> dict[str, Any]:
    """Fit the weights on the queries of a run, as :func:`fit_weights` returns them.

    Parameters
    ----------
    dev_run
        ``retriever, query_id, document_id, score, rank``: what retrievers found that were not
        trained on these queries. It may be empty: all parts then get the same weight.
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
    least
        With fewer queries all parts get the same weight.
    """
    run = dev_run[dev_run["rank"] <= depth]
    dev_queries = queries[queries.query_id.isin(run.query_id)].drop_duplicates("query_id")
    is_usable = (
        qrels.query_id.isin(dev_queries.query_id)
        & qrels.document_id.isin(corpus.document_id)
        & (qrels.relevance > 0)
    )
    truth = of_documents(qrels[is_usable], corpus)
    dev_queries = dev_queries[dev_queries.query_id.isin(truth.query_id)]
    if len(dev_queries) < least:
        return all_equal((BM25, *spreads), len(dev_queries))
    ranking = Ranking.of(dev_queries, truth, corpus, depth)
    lists, units = _lists_of_parts(bm25, dev_queries, ranking, run, spreads)
    rows = np.asarray(truth.query_id.map(_places(dev_queries)), np.int64)
    documents = np.asarray(truth.document_id.map(ranking.place), np.int64)
    trained_on = set(hits_of(corpus)[corpus.document_id.isin(positives)])
    is_labelled = (
        np.bincount(
            rows, truth.document_id.isin(trained_on).to_numpy(float), minlength=len(dev_queries)
        )
        > 0
    )
    return fit_weights(
        lists,
        units,
        side_by_side(rows, documents, len(dev_queries)),
        _padded_values(rows, truth.relevance, len(dev_queries)),
        ~is_labelled,
        seed=seed,
    )


def _lists_of_parts(
    bm25: BM25Index,
    queries: pd.DataFrame,
    ranking: Ranking,
    run: pd.DataFrame,
    spreads: Mapping[str, float],
) -> tuple[dict[str, Ranked], dict[str, Any]]:
    """Return what each part found, and in what units its scores are."""
    search, spread = bm25.search_of(queries.text.tolist())
    lists = {BM25: ranking.lists(search)}
    lists |= {
        name: lists_of(run[run.retriever == name], _places(queries), ranking.place)
        for name in spreads
    }
    return lists, {BM25: spread, **spreads}


def _places(queries: pd.DataFrame) -> dict[str, int]:
    return dict(zip(queries.query_id, range(len(queries)), strict=True))


def lists_of(run: pd.DataFrame, queries: Mapping[str, int], documents: Mapping[str, int]) -> Ranked:
    """Return the lists of a run, ``query_id, document_id, score, rank``, by the numbers of queries and documents.

    Rows of other queries or documents are left out.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["b", "a"], "score": [0.5, 0.75], "rank": [2, 1]})
    >>> [part.tolist() for part in lists_of(run, {"q": 0}, {"a": 0, "b": 1})]
    [[[0, 1]], [[0.75, 0.5]]]
    """
    run = run[run.query_id.isin(queries) & run.document_id.isin(documents)].sort_values(
        "rank", kind="stable"
    )
    rows = np.asarray(run.query_id.map(queries), np.int64)
    lists = side_by_side(rows, np.asarray(run.document_id.map(documents), np.int64), len(queries))
    return Ranked(lists, _padded_values(rows, run.score, len(queries)))


def _padded_values(rows: Int64s, values: Any, count: int) -> Float32s:
    """Values in the places that :func:`anmi.evaluation.retrieval.side_by_side` gives their documents; 0 in padding."""
    numbers = side_by_side(rows, np.arange(len(rows)), count)
    padded = np.append(np.asarray(values, np.float32), np.float32(0))
    return np.where(numbers == PADDING, 0, padded[numbers]).astype(np.float32)


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
    run_queries = queries[queries.query_id.isin(run.query_id)].drop_duplicates("query_id")
    ranking = Ranking.of(run_queries, qrels, corpus, how["depth"])
    lists, units = _lists_of_parts(
        bm25, run_queries, ranking, run[run["rank"] <= how["depth"]], how["spreads"]
    )
    fused = fuse(lists, k, units, how["method"], how["weights"])
    return run_table(ranking.query_ids, ranking.document_ids, fused.documents, fused.scores)
