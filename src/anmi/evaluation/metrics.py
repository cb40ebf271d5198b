"""Retrieval metrics per query, computed by trec_eval through pytrec_eval.

Everything is BEIR-compatible: linear gain in nDCG, the same cut-offs. Runs are without queries that
are documents themselves (:class:`anmi.evaluation.retrieval.Ranking`). Equal scores are ordered as
trec_eval orders them: by document id, descending by bytes, whatever the order of the rows.
trec_eval holds scores in single precision, so scores that differ by less than that are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pytrec_eval
from numpy.typing import NDArray

from anmi.corpus.related import documents_of, hits_of
from anmi.corpus.types import LARGEST_RELEVANCE
from anmi.errors import AnmiError
from anmi.evaluation.significance import interval

KS: Final = (1, 5, 10, 20, 50, 100)
RANK: Final = "rank"
_TREC_NAMES: Final = {
    "ndcg": "ndcg_cut",
    "map": "map_cut",
    "recall": "recall",
    "precision": "P",
    "accuracy": "success",
}


def evaluate(
    qrels: pd.DataFrame,
    run: pd.DataFrame,
    ks: Sequence[int] = KS,
) -> pd.DataFrame:
    """Score a run against relevance labels, query by query.

    Parameters
    ----------
    qrels
        ``query_id, document_id, relevance`` with whole-number relevance; above 0 is relevant, and
        nDCG uses the grade itself as the gain.
    run
        ``query_id, document_id, score``; larger scores are better, the order of the rows does not
        matter. Queries without labels are left out.
    ks
        Cut-offs, each at least 1.

    Returns
    -------
    pandas.DataFrame
        One row per query of the qrels, index ``query_id`` in order of first appearance. Columns
        ``ndcg@k``, ``map@k``, ``mrr@k``, ``recall@k``, ``precision@k``, ``accuracy@k`` (1 if
        anything relevant is in the top k), ``f2@k`` = 5PR / (4P + R), all in [0, 1]; and ``rank``
        of the first relevant document (from 1; NaN when none is in the run). A query without any
        result scores 0 everywhere.

    Raises
    ------
    AnmiError
        For a missing column, a score that is not finite, relevance that is no whole number or too
        large, a pair twice, empty qrels, or a cut-off below 1.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": ["q"], "document_id": ["d1"], "relevance": [1]})
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["d1", "d2"], "score": [0.2, 0.9]})
    >>> evaluate(qrels, run, ks=(1, 10))[["mrr@1", "mrr@10", "rank"]].loc["q"].tolist()
    [0.0, 0.5, 2.0]
    """
    cuts = sorted(set(ks))
    if not cuts or cuts[0] < 1:
        raise AnmiError(f"metrics need cut-offs of at least 1, and got {list(ks)}")
    _check(qrels, "relevance", "qrels")
    _check(run, "score", "run")
    if qrels.empty:
        raise AnmiError(
            "the qrels hold no labels, so nothing can be evaluated; check the split that was"
            " asked for"
        )
    labels = _nested(qrels, "relevance", np.int64)
    is_labelled = run["query_id"].astype(str).isin(labels)
    rankings = _nested(run[is_labelled], "score", np.float64)
    cut_text = ",".join(map(str, cuts))
    measures = {f"{measure}.{cut_text}" for measure in _TREC_NAMES.values()} | {"recip_rank"}
    results = pytrec_eval.RelevanceEvaluator(labels, measures).evaluate(rankings)
    names = {f"{trec}_{k}": f"{name}@{k}" for name, trec in _TREC_NAMES.items() for k in cuts}
    index = pd.Index(list(labels), name="query_id")
    table = pd.DataFrame.from_dict(results, orient="index")
    table = table.reindex(index, columns=[*names, "recip_rank"])
    table = table.astype(np.float64).fillna(0.0)
    reciprocal = table.pop("recip_rank")
    rank = (1.0 / reciprocal.where(reciprocal > 0)).round()
    metrics = table.rename(columns=names)
    # A run cut at k has the same first relevant document, if it is within k, and none otherwise.
    for k in cuts:
        metrics[f"mrr@{k}"] = reciprocal.where(rank <= k, 0.0)
    for k in cuts:
        precision = metrics[f"precision@{k}"]
        recall = metrics[f"recall@{k}"]
        divisor = 4 * precision + recall
        f2 = 5 * precision * recall / divisor.where(divisor > 0)
        metrics[f"f2@{k}"] = f2.fillna(0.0)
    metrics[RANK] = rank
    return metrics


def summarise(per_query: pd.DataFrame) -> dict[str, float]:
    """Average the metrics and describe the ranks.

    Returns the mean of every metric of :func:`evaluate`; ``rank_mean``, ``rank_median``,
    ``rank_min``, ``rank_max`` of the first relevant document where one was found;
    ``rank_not_found``, the number of queries where none was; and ``queries``.
    """
    means = per_query.drop(columns=RANK).mean()
    summary = {str(name): float(value) for name, value in means.items()}
    rank = per_query[RANK].dropna()
    if len(rank):
        for statistic in ("mean", "median", "min", "max"):
            summary[f"rank_{statistic}"] = float(rank.agg(statistic))
    return summary | {
        "rank_not_found": float(len(per_query) - len(rank)),
        "queries": float(len(per_query)),
    }


def profile(
    per_query: pd.DataFrame,
    hardness: pd.Series[float],
    metric: str,
    *,
    groups: int = 8,
) -> pd.DataFrame:
    """Return a metric against hardness, in groups of about equal size.

    There are at most ``groups``; queries of equal hardness are never parted, and a group has ten or
    more, if there are so many. Returns means ``hardness`` and ``value``, the bootstrap interval
    ``low, high`` over the group's queries (NaN for a single one) and ``queries``, easiest group
    first.
    """
    value = hardness[per_query.index].to_numpy(np.float64)
    scores = per_query[metric].to_numpy(np.float64)
    count = max(1, min(groups, len(value) // 10))
    quantiles = np.quantile(value, np.arange(1, count) / count)
    borders = np.unique(quantiles)
    group = np.searchsorted(borders, value, side="right")
    rows = []
    for number in np.unique(group):
        mask = group == number
        mean, low, high = interval(scores[mask], seed=0, resamples=1000)
        group_hardness = float(value[mask].mean())
        rows.append((group_hardness, mean, low, high, int(mask.sum())))
    return pd.DataFrame(rows, columns=["hardness", "value", "low", "high", "queries"])


def _check(table: pd.DataFrame, value: str, table_name: str) -> None:
    """Refuse a table that trec_eval would misread in silence."""

    def refuse(wrong: NDArray[Any], problem: str) -> None:
        if wrong.any():
            query_id, document_id = table[pair].iloc[int(np.argmax(wrong))]
            raise AnmiError(f"{table_name}: query {query_id}, document {document_id} {problem}")

    pair = ["query_id", "document_id"]
    missing = {*pair, value} - set(table.columns)
    if missing:
        raise AnmiError(
            f"the {table_name} lack {', '.join(sorted(missing))}; they need query_id,"
            f" document_id and {value}"
        )
    numbers = pd.to_numeric(table[value], errors="coerce").to_numpy(np.float64)
    wrong = ~np.isfinite(numbers)
    expected = "a finite number"
    if value == "relevance":
        is_broken = numbers != np.floor(numbers)
        wrong |= is_broken | (np.abs(numbers) > LARGEST_RELEVANCE)
        expected = f"a whole number up to {LARGEST_RELEVANCE:,}"
    refuse(wrong, f"has a {value} that is not {expected}; correct it")
    refuse(table.duplicated(pair).to_numpy(), "stands more than once; keep one")


def _nested(
    table: pd.DataFrame,
    value: str,
    dtype: type[np.generic],
) -> dict[str, dict[str, Any]]:
    """Turn a long table into pytrec_eval's query → document → value."""
    queries = table["query_id"].astype(str).tolist()
    documents = table["document_id"].astype(str).tolist()
    values = table[value].to_numpy().astype(dtype).tolist()
    nested: dict[str, dict[str, Any]] = {}
    for query, document, number in zip(queries, documents, values, strict=True):
        nested.setdefault(query, {})[document] = number
    return nested


def of_documents(qrels: pd.DataFrame, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return labels of results from those of passages and copies: the highest of each pair.

    Examples
    --------
    >>> labels = pd.DataFrame({"query_id": "q", "document_id": ["a#1", "a#2"], "relevance": [1, 2]})
    >>> corpus = pd.DataFrame({"document_id": ["a#1", "a#2"], "parent": "a"})
    >>> of_documents(labels, corpus).values.tolist()
    [['q', 'a', 2]]
    """
    results = hits_of(corpus)
    if (results == corpus["document_id"]).all():
        return qrels
    names = dict(zip(corpus["document_id"], results, strict=True))
    documents = qrels["document_id"].map(names).fillna(qrels["document_id"])
    labels = qrels.assign(document_id=documents)
    labels = labels.sort_values("relevance", ascending=False, kind="stable")
    return labels.drop_duplicates(["query_id", "document_id"]).sort_index()


def with_copies(run: pd.DataFrame, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return a run in which each document is followed by those with the same text, as BEIR counts.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": ["q", "q"], "document_id": ["a", "c"], "score": [2.0, 1.0]})
    >>> corpus = pd.DataFrame({"document_id": ["a", "b", "c"], "copy_of": ["a", "a", "c"]})
    >>> with_copies(run, corpus).document_id.tolist()
    ['a', 'b', 'c']
    """
    places = pd.DataFrame({"document_id": hits_of(corpus), "copy": documents_of(corpus)})
    copies = run.merge(places.drop_duplicates(), on="document_id", how="left")
    document_ids = copies["copy"].fillna(copies["document_id"])
    return copies.assign(document_id=document_ids)[run.columns]


def completed_judgments(qrels: pd.DataFrame, equivalents: pd.DataFrame) -> pd.DataFrame:
    """Return the labels with what else is known to be relevant: own documents 2, the others 1.

    Every label above 0 is an own document; equivalents are relevant though no label says so. For
    scoring only.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": ["q"], "document_id": ["own"], "relevance": [1]})
    >>> same = pd.DataFrame({"query_id": ["q", "other"], "document_id": ["twin", "x"]})
    >>> completed_judgments(qrels, same).values.tolist()
    [['q', 'own', 2], ['q', 'twin', 1]]
    """
    pair = ["query_id", "document_id"]
    labelled = qrels.loc[qrels.relevance > 0, pair].assign(relevance=2)
    is_asked = equivalents.query_id.isin(labelled.query_id)
    unlabelled = equivalents.loc[is_asked, pair].assign(relevance=1)
    return pd.concat([labelled, unlabelled]).drop_duplicates(pair, ignore_index=True)
