"""Held-out queries before and after training: which rose most, which fell, and what stands first for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from anmi.evaluation.generalisation import ADDED, ALL, UNSEEN
from anmi.report.inputs import BM25, ZERO_SHOT, metric_name, system_name, systems

METRIC: Final = "ndcg@10"
_TOP: Final = 3
_MOST: Final = 5


def held_out(
    scores: pd.DataFrame, runs: pd.DataFrame, qrels: pd.DataFrame, documents: Mapping[str, int], results: pd.DataFrame
) -> list[dict[str, Any]]:
    """Return every held-out query with nDCG@10 and the first documents, before training and as deployed.

    Parameters
    ----------
    scores
        ``query_id, system`` and the metrics.
    runs
        ``system, query_id, document_id, rank``, from 1.
    qrels
        ``query_id, document_id, relevance``; relevant is what is above 0.
    documents
        Place of a document in the corpus, by id.
    results
        Names the systems in ``recipe``: before is zero-shot (BM25 where that is missing), after the one deployed.

    Returns
    -------
    list of dict
        ``query_id, before, after`` and ``tops``: by system's name (place of the document, whether it is relevant).
        Empty where there are no two systems.
    """
    names = systems(results)
    before = next((name for name in (ZERO_SHOT, BM25) if name in names), None)
    if before is None or len(names) < 2 or names[-1] == before or METRIC not in scores:
        return []
    pair = (before, names[-1])
    values = scores[scores["system"].isin(pair)].pivot_table(METRIC, "query_id", "system")
    if not set(pair) <= set(values.columns):
        return []
    first = runs[runs["system"].isin(pair) & (runs["rank"] <= _TOP)].sort_values("rank", kind="stable")
    relevant = set(map(tuple, qrels.loc[qrels["relevance"] > 0, ["query_id", "document_id"]].itertuples(index=False)))
    tops: dict[str, dict[str, list[tuple[int, bool]]]] = {}
    for system, query_id, document_id in first[["system", "query_id", "document_id"]].itertuples(index=False):
        if document_id in documents:
            entry = (documents[document_id], (query_id, document_id) in relevant)
            tops.setdefault(query_id, {}).setdefault(system_name(system), []).append(entry)
    shown = [system_name(name) for name in pair]
    return [
        {
            "query_id": str(query_id),
            "before": round(float(was), 3),
            "after": round(float(now), 3),
            "tops": {name: tops.get(str(query_id), {}).get(name, []) for name in shown},
        }
        for query_id, was, now in zip(values.index, values[pair[0]], values[pair[1]], strict=True)
    ]


def before_after(
    queries: Sequence[Mapping[str, Any]],
    buckets: pd.DataFrame,
    texts: Mapping[str, str],
    corpus: pd.DataFrame,
    labels: pd.DataFrame,
) -> dict[str, Any] | None:
    """Return the five queries that rose most and the five that fell most, where training saw no document of theirs.

    Parameters
    ----------
    queries
        From :func:`held_out`.
    buckets
        ``query_id, bucket``; those of ``unseen`` are shown, else of ``added``, else all.
    texts
        Of queries, by id.
    corpus
        ``document_id, title, text`` in the order of the places.
    labels
        ``query_id, document_id, relevance``: what should have been found is told where neither system's top has it.

    Returns
    -------
    dict or None
        ``sentence`` and ``groups`` of ``title`` and ``queries``; None where nothing rose or fell.
    """
    bucket_of = dict(zip(buckets.get("query_id", ()), buckets.get("bucket", ()), strict=True))
    there = {bucket_of.get(query["query_id"], ALL) for query in queries}
    bucket = next((name for name in (UNSEEN, ADDED) if name in there), None)
    chosen = [q for q in queries if bucket is None or bucket_of.get(q["query_id"]) == bucket]
    # By their change, then by id, so that ties are broken the same everywhere.
    ordered = sorted(chosen, key=lambda query: (query["before"] - query["after"], query["query_id"]))
    rose = [query for query in ordered if query["after"] > query["before"]]
    fell = [query for query in reversed(ordered) if query["after"] < query["before"]]
    if not rose and not fell:
        return None
    before, after = chosen[0]["tops"]
    same = len(chosen) - len(rose) - len(fell)
    of = {UNSEEN: "whose documents training never saw", ADDED: "about documents held out of training"}.get(bucket or "")
    wanted = labels[labels["relevance"] > 0].groupby("query_id")["document_id"].first()
    place_of = dict(zip(corpus["document_id"], range(len(corpus)), strict=True))
    groups = [
        {"title": title, "queries": [_shown(query, texts, corpus, place_of, wanted) for query in found[:_MOST]]}
        for title, found in (("Rose most", rose), ("Fell most", fell))
        if found
    ]
    return {
        "sentence": f"Of {len(chosen):,} held-out queries{f' {of}' if of else ''}, {len(rose):,} rose from {before} to "
        f"{after}, {len(fell):,} fell and {same:,} stayed, by {metric_name(METRIC)}.",
        "groups": groups,
    }


def _shown(
    query: Mapping[str, Any],
    texts: Mapping[str, str],
    corpus: pd.DataFrame,
    place_of: Mapping[str, int],
    wanted: pd.Series[str],
) -> dict[str, Any]:
    found = any(relevant for top in query["tops"].values() for _, relevant in top)
    missed = wanted.get(query["query_id"]) if not found else None
    return {
        "id": query["query_id"],
        "query": texts.get(query["query_id"], ""),
        "before": f"{query['before']:.2f}",
        "after": f"{query['after']:.2f}",
        "systems": [
            {"name": name, "documents": [_document(corpus, place) | {"relevant": relevant} for place, relevant in top]}
            for name, top in query["tops"].items()
        ],
        "missed": _document(corpus, place_of[missed]) if missed is not None and missed in place_of else None,
    }


def _document(corpus: pd.DataFrame, place: int) -> dict[str, Any]:
    entry = corpus.iloc[place]
    return {"id": str(entry["document_id"]), "text": f"{entry.get('title') or ''} {entry['text']}"}
