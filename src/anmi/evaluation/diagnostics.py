"""What the mining did: the funnel, the leak of relevant documents, gaps and score distributions.

All functions read the shards one at a time and return plain numbers, ready for JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from anmi.candidates import NEGATIVE, OPEN, PADDING, SOURCES, Candidates, Rule
from anmi.errors import AnmiError
from anmi.selection.back_off import TIERS

SCORE_COLUMNS: Final = ("dense", "bm25", "p_relevant", "elo")


def funnel(shards: Iterable[Candidates], n: int = 7) -> list[dict[str, Any]]:
    """Count the way from candidates to negatives.

    Parameters
    ----------
    shards
        Blocks after selection.
    n
        Negatives asked for per row.

    Returns
    -------
    list of dict
        Rows ``step, kind, candidates, queries`` in this order: one of kind ``total``; one per verdict in the order of
        the legend, with its ``rule`` besides and of the kind ``uncertain`` (for distillation only), ``promoted`` (to
        positives) or ``rejected``; ``undecided`` (passed every filter, not drawn); ``negative`` (drawn; queries with
        at least one); ``complete`` (negatives of the queries that have ``n``). In the row of a verdict
        ``candidates`` are those that carry it plus the still open ones of queries it dropped, and ``queries`` are
        those it dropped. The candidates of verdicts + undecided + negative add up to the total. Rows of a block count
        as queries, so a query that stands once per positive counts once per positive.
    """
    steps: dict[str, None] = {}
    rules: dict[str, Rule] = {}
    candidates: Counter[str] = Counter()
    queries: Counter[str] = Counter()
    total, complete = Counter[str](), Counter[str]()
    for block in shards:
        steps |= dict.fromkeys(block.legend[2:])
        rules |= block.rules
        fate = _fate(block)
        for code, name in enumerate(block.legend):
            candidates[name] += int((fate == code).sum())
            queries[name] += int((block.query_verdict == code).sum())
        chosen = (fate == NEGATIVE).sum(axis=1)
        queries["negative"] += int((chosen > 0).sum())
        full = chosen >= n
        complete.update(candidates=int(chosen[full].sum()), queries=int(full.sum()))
        total.update(candidates=int(block.filled.sum()), queries=len(block))
    rows: list[dict[str, Any]] = [{"step": "candidates", "kind": "total", **_counts(total)}]
    for name in steps:
        rule = rules.get(name, Rule())
        kind = rule.kind if rule.kind in ("uncertain", "promoted") else "rejected"
        rows.append(
            {"step": name, "kind": kind, "rule": rule.text, "candidates": candidates[name], "queries": queries[name]}
        )
    rows.append(
        {"step": "not drawn", "kind": "undecided", "candidates": candidates["open"], "queries": queries["open"]}
    )
    rows.append(
        {
            "step": "negatives",
            "kind": "negative",
            "candidates": candidates["negative"],
            "queries": queries["negative"],
        }
    )
    rows.append({"step": f"all {n} negatives", "kind": "complete", **_counts(complete)})
    return rows


def _counts(counter: Counter[str]) -> dict[str, int]:
    return {"candidates": counter["candidates"], "queries": counter["queries"]}


def _fate(block: Candidates) -> NDArray[np.int16]:
    """Legend code that decided on each candidate, [Q, M]; -1 in padding.

    A candidate that was still open when its query was dropped shares the fate of the query.
    """
    query = np.broadcast_to(block.query_verdict[:, None], block.verdict.shape)
    fate = np.where((block.verdict == OPEN) & (query != OPEN), query, block.verdict)
    result: NDArray[np.int16] = np.where(block.filled, fate, np.int16(PADDING)).astype(np.int16)
    return result


def origins(shards: Iterable[Candidates]) -> dict[str, dict[str, int]]:
    """Count where the selected negatives came from.

    Parameters
    ----------
    shards
        Blocks after selection.

    Returns
    -------
    dict
        ``sources``: negatives by the sources that found them, such as ``bm25+dense``; ``tiers``: by the tier of the
        back-off they were drawn from, empty where the recipe has none. Both largest first.
    """
    sources: Counter[str] = Counter()
    tiers: Counter[str] = Counter()
    for block in shards:
        chosen = block.take(block.query_verdict == OPEN)
        bits, counts = np.unique(chosen.source[chosen.negatives], return_counts=True)
        for value, count in zip(bits.tolist(), counts.tolist(), strict=True):
            sources["+".join(name for name, bit in SOURCES.items() if value & bit)] += count
        if "tier" in chosen.columns:
            drawn = chosen.columns["tier"][chosen.negatives]
            for tier, count in zip(*np.unique(drawn[np.isfinite(drawn)], return_counts=True), strict=True):
                tiers[TIERS[int(tier)]] += int(count)
    return {"sources": dict(sources.most_common()), "tiers": dict(tiers.most_common())}


def by_source(
    shards: Iterable[Candidates], rows: pd.DataFrame, source_of: Mapping[str, str], default: str
) -> list[dict[str, Any]]:
    """Count for each part of a collection what passed the consistency filter and how many negatives came of it.

    Parameters
    ----------
    shards
        Blocks after selection; the query column ``consistent`` says what passed, and without it all did.
    rows
        Training rows with ``query_id`` and ``negative_ids``.
    source_of
        Source by query id.
    default
        Source of the other queries.

    Returns
    -------
    list of dict
        ``source, queries, passed, failed, rows, negatives_mean, negatives_min, negatives_max``; the numbers of
        negatives are per row, None without one.

    Examples
    --------
    >>> rows = pd.DataFrame({"query_id": ["q"], "negative_ids": [["d1", "d2"]]})
    >>> by_source([], rows, {}, "mine")
    []
    """
    passed: dict[str, bool] = {}
    for block in shards:
        consistent = block.query_columns.get("consistent", np.ones(len(block), np.float32)) > 0
        passed |= dict(zip(block.query_ids.tolist(), consistent.tolist(), strict=True))
    queries = pd.DataFrame({"source": [source_of.get(q, default) for q in passed], "passed": list(passed.values())})
    sources = np.array([source_of.get(query, default) for query in rows["query_id"]], dtype=object)
    wide = rows["negative_ids"].map(len).to_numpy(np.int64)
    table = []
    for source, group in queries.groupby("source", sort=True):
        count, good, mine = len(group), int(group.passed.sum()), wide[sources == source]
        known = {"mean": float(mine.mean()), "min": int(mine.min()), "max": int(mine.max())} if len(mine) else {}
        spread = {f"negatives_{name}": known.get(name) for name in ("mean", "min", "max")}
        table.append(
            {"source": source, "queries": count, "passed": good, "failed": count - good, "rows": len(mine)} | spread
        )
    return table


def leak(rows: pd.DataFrame, equivalents: pd.DataFrame, qrels: pd.DataFrame) -> dict[str, Any]:
    """Count the selected negatives that were in truth relevant.

    Parameters
    ----------
    rows
        Training rows with ``query_id`` and ``negative_ids`` (a list of document ids).
    equivalents
        ``query_id, document_id``: relevant though no qrel says so; never seen by the mining.
    qrels
        ``query_id, document_id, relevance``; every label above 0 counts.

    Returns
    -------
    dict
        ``count``, ``total`` (selected negatives), ``share``, its 95 % Wilson interval ``low`` and ``high``;
        ``queries`` with at least one such negative, ``queries_total``, and ``known``: queries for which any
        equivalent is known, without which a small leak means little. Without negatives the share is 0 in [0, 1].

    Examples
    --------
    >>> rows = pd.DataFrame({"query_id": ["q"], "negative_ids": [["d1", "d2"]]})
    >>> same = pd.DataFrame({"query_id": ["q"], "document_id": ["d2"]})
    >>> none = pd.DataFrame({"query_id": [], "document_id": [], "relevance": []})
    >>> found = leak(rows, same, none)
    >>> found["count"], found["total"], found["share"]
    (1, 2, 0.5)
    """
    relevant = qrels.loc[pd.to_numeric(qrels["relevance"]) > 0, ["query_id", "document_id"]]
    truth = pd.concat([equivalents[["query_id", "document_id"]], relevant]).astype(str).drop_duplicates()
    chosen = rows[["query_id", "negative_ids"]].explode("negative_ids").dropna().astype(str)
    known = pd.MultiIndex.from_frame(truth)
    hit = pd.MultiIndex.from_frame(chosen).isin(known) if len(known) and len(chosen) else np.zeros(len(chosen), bool)
    count, total = int(hit.sum()), len(chosen)
    queries = set(rows["query_id"].astype(str))
    low, high = scipy.stats.binomtest(count, total).proportion_ci(0.95, method="wilson") if total else (0.0, 1.0)
    return {
        "count": count,
        "total": total,
        "share": count / total if total else 0.0,
        "low": float(low),
        "high": float(high),
        "queries": int(chosen.loc[hit, "query_id"].nunique()),
        "queries_total": len(queries),
        "known": len(queries & set(equivalents["query_id"].astype(str))),
    }


def gap(shards: Iterable[Candidates], column: str = "elo", bins: int = 40) -> dict[str, Any]:
    """Measure how far the selected negatives lie below the positive of their row.

    Parameters
    ----------
    shards
        Blocks after selection; can be passed over twice. The positive of a row is column 0 of the positive arrays.
    column
        A measurement that candidates and positives both have.
    bins
        Of the histogram.

    Returns
    -------
    dict
        ``column``, ``count``, ``mean``, ``median``, ``edges`` (bins + 1) and ``counts`` of positive minus negative.
        Empty when no selected negative has the measurement.
    """
    parts = []
    for block in shards:
        if column not in block.columns or column not in block.positive_columns:
            # All blocks have the same columns, so the others need not be read.
            break
        gaps = block.positive_columns[column][:, :1] - block.columns[column]
        parts.append(gaps[(_fate(block) == NEGATIVE) & np.isfinite(gaps)])
    gaps = np.concatenate(parts).astype(np.float64) if parts else np.zeros(0)
    if not len(gaps):
        return {}
    counts, edges = np.histogram(gaps, bins=bins)
    return {
        "column": column,
        "count": len(gaps),
        "mean": float(gaps.mean()),
        "median": float(np.median(gaps)),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
    }


def distributions(
    shards: Iterable[Candidates], columns: Sequence[str] = SCORE_COLUMNS, bins: int = 40
) -> dict[str, dict[str, Any]]:
    """Histogram the scores of positives, kept and rejected candidates.

    Parameters
    ----------
    shards
        Blocks after selection. They are read twice (once for the range), so an iterator will not do.
    columns
        Measurements; those no shard has are left out.
    bins
        Of equal width between the smallest and the largest value.

    Returns
    -------
    dict
        By column: ``edges`` (bins + 1) and counts (bins) for ``positives`` (of the row), ``kept`` (passed every
        filter), ``negatives`` (the part of ``kept`` that was drawn) and ``rejected``, a dict by step.

    Raises
    ------
    AnmiError
        When ``shards`` can be read only once.
    """
    if iter(shards) is shards:
        raise AnmiError("score distributions read the shards twice; pass CandidateShards or a list, not an iterator")
    ranges = _ranges(shards, columns)
    result: dict[str, dict[str, Any]] = {}
    for block in shards:
        fate = _fate(block)
        for name, (low, high) in ranges.items():
            edges = np.linspace(low, high, bins + 1)
            entry = result.setdefault(name, {"edges": edges.tolist(), "rejected": {}})
            for group, values in _groups(block, name, fate).items():
                target = entry["rejected"] if group[0] == "rejected" else entry
                counts = np.histogram(values, edges)[0]
                target[group[1]] = counts + target.get(group[1], 0)
    return {name: _plain(entry) for name, entry in result.items()}


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    rejected = {step: counts.tolist() for step, counts in entry["rejected"].items() if counts.any()}
    groups = {name: entry[name].tolist() for name in ("positives", "kept", "negatives")}
    return {"edges": entry["edges"], **groups, "rejected": rejected}


def _ranges(shards: Iterable[Candidates], columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    ranges: dict[str, tuple[float, float]] = {}
    for block in shards:
        for name in columns:
            every = (block.columns.get(name), block.positive_columns.get(name, np.zeros((0, 1), np.float32))[:, :1])
            values = [v[np.isfinite(v)] for v in every if v is not None]
            values = [v for v in values if len(v)]
            if values:
                low, high = ranges.get(name, (np.inf, -np.inf))
                ranges[name] = (
                    min(low, *(float(v.min()) for v in values)),
                    max(high, *(float(v.max()) for v in values)),
                )
    return {name: (low, high if high > low else low + 1.0) for name, (low, high) in ranges.items()}


def _groups(block: Candidates, name: str, fate: NDArray[np.int16]) -> dict[tuple[str, str], NDArray[np.float32]]:
    """Values of one measurement by (kind, group); ``fate`` says what became of each candidate."""
    groups: dict[tuple[str, str], NDArray[np.float32]] = {}
    positive = block.positive_columns.get(name, np.zeros((len(block), 0), np.float32))[:, :1]
    groups["group", "positives"] = positive[block.positives[:, : positive.shape[1]] != PADDING]
    values = block.columns.get(name)
    if values is None:
        values = np.full(block.documents.shape, np.nan, np.float32)
    groups["group", "kept"] = values[(fate == OPEN) | (fate == NEGATIVE)]
    groups["group", "negatives"] = values[fate == NEGATIVE]
    groups |= {("rejected", step): values[fate == code] for code, step in enumerate(block.legend) if code > NEGATIVE}
    return {group: found[np.isfinite(found)] for group, found in groups.items()}
