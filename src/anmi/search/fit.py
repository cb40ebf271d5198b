"""The weights of a search are fitted on the rankings of dev queries and their labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.candidates import PADDING
from anmi.evaluation.choice import Prior, balanced, choose
from anmi.evaluation.metrics import of_documents
from anmi.evaluation.retrieval import Ranking, run_table, side_by_side
from anmi.ragged import Bools, Float32s, Float64s, Int32s, Int64s, in_rows
from anmi.retrieval.fusion import Lists, Ranked, Spreads, aligned, comparable, fuse, mixed
from anmi.search.hybrid import PartLists, shares
from anmi.search.parts import BM25, CORPUS, NETWORK, TRAINED

# Weights are multiples of a tenth before they are averaged.
STEPS: Final = 10
CUT: Final = 10
# A part of less weight is left out: it costs what the others cost, and decides nothing.
LEAST_WEIGHT: Final = 0.08
# Weights without dev queries, in proportion; those of trained parts approach _TRAINED_WORTH as
# labels grow. benchmarks/few_labels.py has what that loses (``prior``).
_WORTH: Final = {"bm25": 0.25, "network": 0.6, "corpus": 0.15, "dense": 0.15, "sparse": 0.15}
_TRAINED_WORTH: Final = 0.8
# Where there is no network.
_BM25_WORTH: Final = 0.35
# With so many labelled documents the worth is halfway between the two.
_DOCUMENTS: Final = 200
# See anmi.evaluation.choice.Prior.
_FALL: Final = 0.12
_SPREAD: Final = 0.055
_REACH: Final = 0.6
# Columns of what parts rank: a row per part, query and document.
PART_COLUMNS: Final = {
    "query_id": "",
    "document_id": "",
    "score": 0.0,
    "rank": 0,
    "part": "",
    "spread": 0.0,
}


def prior(parts: Iterable[str], documents: int) -> dict[str, float]:
    """Return the weights of parts of which no dev query is known.

    A trained part is worth the more, the more ``documents`` had a training label. Beside it the
    encoder that it began with adds nothing.

    Examples
    --------
    >>> prior(["bm25", "dense", "corpus", "network"], documents=0)
    {'bm25': 0.25, 'dense': 0.15, 'corpus': 0.0, 'network': 0.6}
    >>> weights = prior(["bm25", "dense", "network"], documents=1000)
    >>> {name: round(weight, 2) for name, weight in weights.items()}
    {'bm25': 0.16, 'dense': 0.45, 'network': 0.39}
    """
    names = list(parts)
    worth = {name: _WORTH[name] for name in names}
    labelled_share = documents / (documents + _DOCUMENTS)
    trained = [name for name in names if name in TRAINED]
    worth |= {
        name: worth[name] + labelled_share * (_TRAINED_WORTH - worth[name]) for name in trained
    }
    if CORPUS in names and trained:
        worth[CORPUS] = 0.0
    if BM25 in names and NETWORK not in names:
        worth[BM25] = _BM25_WORTH
    return shares(worth, worth)


def unfitted(parts: Iterable[str], documents: int) -> dict[str, Any]:
    """Return what :func:`fit_weights` does without a query: the :func:`prior`."""
    weights = trimmed(prior(parts, documents))
    return {
        "weights": weights,
        "low": dict.fromkeys(weights, 0.0),
        "high": dict.fromkeys(weights, 1.0),
        "queries": 0,
        "unlabelled": 0,
        "ndcg@10": {},
        "without": {},
    }


def fit_weights(
    lists: Lists,
    spreads: Spreads,
    labelled: Int32s,
    grades: Float32s,
    unlabelled: Bools,
    *,
    documents: int,
    seed: int,
) -> dict[str, Any]:
    """Choose the weights with the best mean nDCG@10.

    Parameters
    ----------
    lists, spreads
        What each part ranks for Q queries that no part was trained on; see
        :func:`anmi.retrieval.fusion.fuse`.
    labelled
        Their labelled documents, int32 [Q, P], padded with -1.
    grades
        Of these documents, float32 [Q, P]; above 0 is relevant.
    unlabelled
        [Q]; whether training saw none of the query's relevant documents as a positive. The others
        count together at most as much as these, each a quarter at least: a retriever is better on
        documents that it was trained to find, and would get a weight that it does not deserve
        elsewhere.
    documents
        How many training saw as positives, see :func:`prior`.
    seed
        Of the draws, see :func:`anmi.evaluation.choice.choose`.

    Returns
    -------
    dict
        ``weights``: by part, in [0, 1], with sum 1; below .08 a weight is 0.
        ``low``, ``high``: 95 % interval of each weight; 0 and 1 without a query.
        ``queries``, ``unlabelled``: how many were fitted on, and how many of these are unlabelled.
        ``ndcg@10``: of these queries by each part alone, and by the ``hybrid``; empty without one.
        ``without``: nDCG@10 of the hybrid without each of its parts; empty without a query.

    Notes
    -----
    The rule, and what it makes of few queries, is :func:`anmi.evaluation.choice.choose`. Before any
    query the :func:`prior` is best. Pseudo-queries have the words of their document, and choose no
    weights: they would give BM25 most.

    Examples
    --------
    >>> from anmi.retrieval.fusion import Ranked
    >>> right = Ranked(np.array([[1, 2]] * 90, np.int32), np.array([[2.0, 1.0]] * 90, np.float32))
    >>> wrong = Ranked(np.array([[3, 1]] * 90, np.int32), np.array([[2.0, 1.0]] * 90, np.float32))
    >>> parts = {"bm25": wrong, "dense": right}
    >>> truth, grades = np.full((90, 1), 1, np.int32), np.ones((90, 1), np.float32)
    >>> fit = fit_weights(parts, {}, truth, grades, np.ones(90, bool), documents=0, seed=1)
    >>> fit["weights"]["dense"] > 0.6, fit["queries"], fit["unlabelled"]
    (True, 90, 90)
    """
    if not len(labelled):
        return unfitted(lists, documents)
    query_weights = balanced(unlabelled)
    measured = Measured(lists, spreads, labelled, grades, query_weights)
    options = points(len(lists))
    scores_by_option = [measured.ndcg(tuple(point)) for point in options.tolist()]
    scores = np.stack(scores_by_option, axis=1)
    prior_weights = tuple(prior(lists, documents).values())
    before = Prior(prior_weights, _FALL, _SPREAD, _REACH)
    choice = choose(options, before, scores, query_weights, seed=seed)
    chosen_weights = dict(zip(lists, choice.point.tolist(), strict=True))
    weights = trimmed(chosen_weights)
    alone = {name: measured.mean({name: 1.0}) for name in lists}
    without = {
        name: measured.mean(shares(weights | {name: 0.0}, lists))
        for name, weight in weights.items()
        if 0 < weight < 1
    }
    return {
        "weights": weights,
        "low": dict(zip(lists, choice.low.tolist(), strict=True)),
        "high": dict(zip(lists, choice.high.tolist(), strict=True)),
        "queries": len(labelled),
        "unlabelled": int(unlabelled.sum()),
        "ndcg@10": alone | {"hybrid": measured.mean(weights)},
        "without": without,
    }


def trimmed(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights rounded to thousandths, without those below :data:`LEAST_WEIGHT`.

    Examples
    --------
    >>> trimmed({"bm25": 0.04, "dense": 0.64, "network": 0.32})
    {'bm25': 0.0, 'dense': 0.667, 'network': 0.333}
    """
    heavy = {name: weight for name, weight in weights.items() if weight >= LEAST_WEIGHT}
    heavy_shares = shares(heavy, heavy)
    rounded = {name: round(weight, 3) for name, weight in heavy_shares.items()}
    largest = max(rounded, key=rounded.__getitem__)
    shortfall = 1 - sum(rounded.values())
    rounded[largest] = round(shortfall + rounded[largest], 3)
    return {name: rounded.get(name, 0.0) for name in weights}


class Measured:
    """Ranks documents by weighted sums of the parts' scores, and measures nDCG@10 of each query.

    Parameters
    ----------
    lists, spreads, labelled, grades
        See :func:`fit_weights`.
    query_weights
        What each query counts, [Q].
    """

    def __init__(
        self,
        lists: Lists,
        spreads: Spreads,
        labelled: Int32s,
        grades: Float32s,
        query_weights: Float64s,
    ) -> None:
        union = aligned(lists)
        self.names = tuple(lists)
        self.query_shares = query_weights / query_weights.sum()
        self._parts = list(comparable(union, lists, spreads).values())
        self._is_padding = union.documents == PADDING
        self._gains = np.zeros(union.documents.shape)
        positive_grades = np.where(labelled == PADDING, 0, np.maximum(grades, 0))
        for document, grade in zip(labelled.T, positive_grades.T, strict=True):
            is_labelled = (union.documents == document[:, None]) & ~self._is_padding
            self._gains += np.where(is_labelled, grade[:, None], 0)
        self._discounts = 1 / np.log2(np.arange(2, CUT + 2))
        largest = -np.sort(-positive_grades)[:, :CUT]
        self._ideal = largest @ self._discounts[: largest.shape[1]]
        self._values: dict[tuple[float, ...], Float64s] = {}

    def mean(self, weights: Mapping[str, float]) -> float:
        """Return the mean nDCG@10 by weights of parts; those not named have none."""
        point = tuple(weights.get(name, 0.0) for name in self.names)
        return round(float(self.ndcg(point) @ self.query_shares), 4)

    def ndcg(self, point: tuple[float, ...]) -> Float64s:
        """Return nDCG@10 of each query, [Q], by a weight of each part; gain is linear.

        A query without a relevant document has 0.
        """
        if point not in self._values:
            fused = mixed(point, self._parts)
            scores = np.where(self._is_padding, -np.inf, fused)
            order = np.argsort(-scores, kind="stable")[:, :CUT]
            gains = in_rows(self._gains, order)
            reached = gains @ self._discounts[: gains.shape[1]]
            ndcg = np.zeros(len(reached))
            np.divide(reached, self._ideal, out=ndcg, where=self._ideal > 0)
            self._values[point] = ndcg
        return self._values[point]


def points(parts: int) -> Float64s:
    """Return all ways to share a weight of 1, in tenths, of five parts in fifths, [K, parts].

    Examples
    --------
    >>> points(1).shape, points(2).shape, points(3).shape, points(5).shape
    ((1, 1), (11, 2), (66, 3), (126, 5))
    """
    steps = STEPS if parts < 5 else STEPS // 2
    # Bars between stars: each way to place them is a composition of the steps.
    places = steps + parts - 1
    bars = np.array([*combinations(range(places), parts - 1)], dtype=int)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=(-1, places))
    return (np.diff(edges, axis=1) - 1) / steps


def fit_on_dev(
    part_runs: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    names: Sequence[str],
    positives: Collection[str],
    depth: int,
    seed: int,
) -> dict[str, Any]:
    """Fit the weights on the queries of runs, as :func:`fit_weights` returns them.

    Parameters
    ----------
    part_runs
        As :func:`part_table` returns it, of parts that were not trained on these queries.
    corpus
        The documents that were searched.
    queries, qrels
        Those of the runs among others.
    names
        Parts that may have a weight.
    positives
        Ids of the documents, as ``hits_of(corpus)`` has them, that training saw as positives.
    depth
        Documents of each part that are fused.
    seed
        Of the draws, see :func:`anmi.evaluation.choice.choose`.
    """
    part_runs = part_runs[part_runs.part.isin(names)]
    ranked_for = part_runs.query_id.unique()
    dev_queries = queries[queries.query_id.isin(ranked_for)].drop_duplicates("query_id")
    is_usable = (
        qrels.query_id.isin(dev_queries.query_id)
        & qrels.document_id.isin(corpus.document_id)
        & (qrels.relevance > 0)
    )
    truth = of_documents(qrels[is_usable], corpus)
    dev_queries = dev_queries[dev_queries.query_id.isin(truth.query_id)]
    if dev_queries.empty:
        return unfitted(names, len(positives))
    seen_query_ids = truth.query_id[truth.document_id.isin(positives)]
    is_unlabelled = ~dev_queries.query_id.isin(seen_query_ids).to_numpy()
    lists = labelled_lists(part_runs, corpus, dev_queries, truth, names=names, depth=depth)
    return fit_weights(*lists, is_unlabelled, documents=len(positives), seed=seed)


def labelled_lists(
    part_runs: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    truth: pd.DataFrame,
    *,
    names: Iterable[str],
    depth: int,
) -> tuple[Lists, Spreads, Int32s, Float32s]:
    """Return what parts rank and what is labelled, as :func:`fit_weights` takes it."""
    ranking = Ranking.of(queries, truth, corpus, depth)
    lists, spreads = part_lists(part_runs[part_runs["rank"] <= depth], names, ranking)
    row_of = _places(ranking.query_ids)
    rows = np.asarray(truth.query_id.map(row_of), np.int64)
    documents = np.asarray(truth.document_id.map(ranking.place), np.int64)
    grades = _padded_values(rows, truth.relevance, len(queries))
    return lists, spreads, side_by_side(rows, documents, len(queries)), grades


def part_table(
    lists: PartLists,
    query_ids: list[str],
    document_ids: list[str],
) -> pd.DataFrame:
    """Return lists of parts as a table ``part, query_id, document_id, score, rank, spread``."""
    tables = []
    for name, ranked in lists.documents.items():
        spreads = lists.spreads[name].tolist()
        spread_of = dict(zip(query_ids, spreads, strict=True))
        run = run_table(query_ids, document_ids, *ranked)
        spread = run.query_id.map(spread_of).astype(float)
        tables.append(run.assign(part=name, spread=spread))
    return pd.concat(tables, ignore_index=True)


def part_lists(
    part_runs: pd.DataFrame, names: Iterable[str], ranking: Ranking
) -> tuple[dict[str, Ranked], dict[str, Float64s]]:
    """Return lists of parts as numbers of documents, and their spreads; see :func:`part_table`."""
    lists = {}
    spreads = {}
    for name in names:
        run = part_runs[part_runs.part == name]
        ranked = lists_of(run, _places(ranking.query_ids), ranking.place)
        # Padding says that the part found no more, so all lists are as wide as they may be long.
        missing = max(ranking.depth - ranked.documents.shape[1], 0)
        padding = ((0, 0), (0, missing))
        documents = np.pad(ranked.documents, padding, constant_values=PADDING)
        lists[name] = Ranked(documents, np.pad(ranked.scores, padding))
        first_rows = run.drop_duplicates("query_id").set_index("query_id")
        spread = first_rows["spread"].reindex(ranking.query_ids)
        spreads[name] = spread.fillna(1.0).to_numpy(np.float64)
    return lists, spreads


def fused_run(
    part_runs: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    settings: Mapping[str, Any],
    k: int,
) -> pd.DataFrame:
    """Return the run of the hybrid of the parts that have a weight.

    Parameters
    ----------
    part_runs
        As :func:`part_table` returns it.
    corpus
        The documents that were searched.
    queries, qrels
        Those of the runs among others.
    settings
        ``method``, ``weights`` and ``depth``, see :class:`anmi.search.HybridSearch`.
    k
        Documents per query.
    """
    weights = {name: weight for name, weight in settings["weights"].items() if weight}
    runs = part_runs[part_runs["rank"] <= settings["depth"]]
    ranked_for = part_runs.query_id.unique()
    run_queries = queries[queries.query_id.isin(ranked_for)].drop_duplicates("query_id")
    ranking = Ranking.of(run_queries, qrels, corpus, settings["depth"])
    lists, spreads = part_lists(runs, weights, ranking)
    fused = fuse(lists, k, spreads, settings["method"], shares(weights, lists))
    return run_table(ranking.query_ids, ranking.document_ids, fused.documents, fused.scores)


def _places(query_ids: Iterable[str]) -> dict[str, int]:
    return {query_id: place for place, query_id in enumerate(query_ids)}


def lists_of(
    run: pd.DataFrame,
    queries: Mapping[str, int],
    documents: Mapping[str, int],
) -> Ranked:
    """Return the ranked lists of a run by the numbers of its queries and documents.

    The run has the columns ``query_id, document_id, score, rank``.

    Rows of other queries or documents are left out.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["b", "a"]})
    >>> run = run.assign(score=[0.5, 0.75], rank=[2, 1])
    >>> [part.tolist() for part in lists_of(run, {"q": 0}, {"a": 0, "b": 1})]
    [[[0, 1]], [[0.75, 0.5]]]
    """
    run = run.sort_values("rank", kind="stable")
    query_positions = pd.Index(list(queries)).get_indexer(pd.Index(run.query_id))
    document_positions = pd.Index(list(documents)).get_indexer(pd.Index(run.document_id))
    is_known = (query_positions >= 0) & (document_positions >= 0)
    query_rows = np.array([*queries.values()], np.int64)
    rows = query_rows[query_positions[is_known]]
    document_numbers = np.array([*documents.values()], np.int64)
    numbers = document_numbers[document_positions[is_known]]
    lists = side_by_side(rows, numbers, len(queries))
    return Ranked(lists, _padded_values(rows, run.score[is_known], len(queries)))


def _padded_values(rows: Int64s, values: Any, count: int) -> Float32s:
    """Return values in the places that ``side_by_side`` gives their documents; 0 in padding."""
    numbers = side_by_side(rows, np.arange(len(rows)), count)
    with_zero = np.append(np.asarray(values, np.float32), np.float32(0))
    padded = np.where(numbers == PADDING, 0, with_zero[numbers])
    return padded.astype(np.float32)
