"""These sentences sum up results: how the deployed system compares, what it is made of, and where it lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from anmi.corpus.types import RUN_ENDINGS
from anmi.evaluation.generalisation import ALL, FEW, NEW, UNLABELLED
from anmi.report.inputs import (
    BM25,
    METRIC,
    ZERO_SHOT,
    between,
    bucket_counts,
    difference,
    lookup,
    metric_name,
    of_bucket,
    p_value,
    signed,
    system_name,
    systems,
)

_PARTS: Final = {"bm25": "BM25"}
_OF: Final = {UNLABELLED: "on documents that nobody labelled", NEW: "on new documents"}


def where(collection: str, recipe: str, run: str, date: str) -> str:
    """Say in one line of which run something is.

    Examples
    --------
    >>> where("docs:notes/*.md", "anmi", "2026-01-01T00.00.00.000Z", "2026-01-01T00:00:00+00:00")
    'docs:notes/*.md · recipe anmi · run 2026-01-01T00.00.00.000Z · 2026-01-01 00:00 UTC'
    """
    when = f"{date[:16].replace('T', ' ')} UTC" if date.endswith("+00:00") else date
    return " · ".join(filter(None, (collection, recipe and f"recipe {recipe}", run and f"run {run}", when)))


def pseudo_query_notice(test_queries: str | None) -> str:
    """Say where nobody labelled the test queries; nothing for ``labels``.

    Examples
    --------
    >>> pseudo_query_notice("labels"), pseudo_query_notice("pseudo_queries")[:41]
    ('', 'No test query has a label: pseudo-queries')
    """
    if test_queries != "pseudo_queries":
        return ""
    return (
        "No test query has a label: pseudo-queries made of new documents replace them, "
        "which is weaker evidence than labels."
    )


def verdict(results: pd.DataFrame, comparisons: pd.DataFrame) -> str:
    """Say how what is deployed does against every other system, where there are queries enough to say it.

    That is on documents that nobody labelled and on new ones; on all test queries where neither have enough. What is
    deployed is the hybrid where there is one, else what was trained. Results without buckets are about all queries.
    """
    counts = bucket_counts(results)
    rows = of_bucket(results, ALL)
    total = int(rows["queries"].max()) if len(rows) and "queries" in rows else 0
    if total < FEW and ("queries" in rows or rows.empty):
        noun = "query" if total == 1 else "queries"
        return (
            f"Too few to measure: {total:,} test {noun}, and {FEW} are the least that tell systems apart. To measure "
            "the search, ask it questions in `kedro anmi serve` and mark the answers."
        )
    enough = [name for name in _OF if counts.get(name, 0) >= FEW]
    told = [_against(results, comparisons, name, counts.get(name, total)) for name in enough or [ALL]]
    few = [f"{counts[name]:,} {_OF[name]}" for name in _OF if 0 < counts.get(name, 0) < FEW]
    told.append(f"Too few to measure: {', '.join(few)}." if few and any(told) else "")
    if counts and not counts.keys() & _OF.keys():
        told.append("A training query's label names a document of each, so nothing is known about other documents.")
    return " ".join(sentence for sentence in told if sentence)


def _against(results: pd.DataFrame, comparisons: pd.DataFrame, bucket: str, count: int) -> str:
    names = systems(results)
    own = lookup(results, names[-1], METRIC, bucket) if names else None
    against: dict[str, list[str]] = {}
    for other in names[:-1]:
        change = difference(comparisons, names[-1], METRIC, bucket, baseline=other)
        before = lookup(results, other, METRIC, bucket)
        if change and before:
            relation = "above" if change["low"] > 0 else "below" if change["high"] < 0 else "not clearly different from"
            bounds = between(change["low"], change["high"], signed, ", ")
            told = f"{signed(change['difference'])} [{bounds}], {p_value(change['p_value'])}"
            against.setdefault(relation, []).append(f"{system_name(other)} {before['value']:.3f} ({told})")
    if not (own and against):
        return ""
    asked = _OF.get(bucket, "on all test queries") + (f" ({count:,} queries)" if count else "")
    said = "; ".join(f"{relation} {', '.join(others)}" for relation, others in against.items())
    value = f"{own['value']:.3f} [{between(own['low'], own['high'], joint=', ')}]"
    return f"{asked[0].upper()}{asked[1:]}, {system_name(names[-1])} has {metric_name(METRIC)} {value}: {said}."


def composition(hybrid: Mapping[str, Any] | None) -> str:
    """Say what the hybrid is made of and what its weights rest on; empty where ranks are fused, or nothing is known."""
    weights = (hybrid or {}).get("weights")
    if not hybrid or not weights or hybrid.get("method") != "convex":
        return ""
    made = " + ".join(f"{weight:.2f} {_PARTS.get(part, part)}" for part, weight in weights.items())
    fit = hybrid.get("fit") or {}
    kind = "pseudo-queries" if fit.get("of") == "pseudo_queries" else "dev queries"
    if not fit.get("queries"):
        return f"hybrid: {made}, weights that no dev query chose."
    if fit["kind"] == "none":
        return f"hybrid: {made}, the default, as {fit['queries']:,} {kind} are too few to choose weights."
    which = " on documents that no training label names" if fit["kind"] == "unlabelled" else ""
    there = ", ".join(f"{_PARTS.get(part, part)} {value:.3f}" for part, value in fit["ndcg@10"].items())
    return f"hybrid: {made}, chosen by {fit['queries']:,} {kind}{which}; {metric_name(METRIC)} there: {there}."


def warning(results: pd.DataFrame, comparisons: pd.DataFrame) -> str:
    """Say that a system fell significantly below the untrained encoder where no label helped; else nothing."""
    counts, worse = bucket_counts(results), []
    for bucket in (name for name in _OF if counts.get(name, 0) >= FEW):
        for system in systems(results):
            untrained = system in (BM25, ZERO_SHOT) or system.endswith(RUN_ENDINGS)
            change = None if untrained else difference(comparisons, system, METRIC, bucket)
            if change and change["high"] < 0:
                bounds = between(change["low"], change["high"], signed, ", ")
                told = f"{signed(change['difference'])} [{bounds}], {p_value(change['p_value'])}"
                worse.append(f"{system_name(system)} {_OF[bucket]} ({told})")
    if not worse:
        return ""
    return (
        f"Warning: training lost quality against zero-shot: {', '.join(worse)}. What was gained elsewhere may not "
        "reach new questions."
    )


def false_negatives_lines(found: Mapping[str, Any]) -> list[str]:
    """Return how many negatives are in truth relevant, and whose truth had a part in judging them.

    From :func:`anmi.evaluation.diagnostics.false_negatives`, with ``of`` and ``judge``; nothing where it is not known.
    """
    if not found:
        return []
    share = "none chosen" if not found["total"] else f"{found['share']:.1%}"
    hidden = "" if found["known"] else "no unlabelled relevant document of these queries is known, so more may hide"
    return [
        f"{found.get('of', 'selected')} negatives that are in truth relevant: {found['count']} of {found['total']} "
        f"({share}, 95 % interval over queries {found['low']:.1%} to {found['high']:.1%})",
        *(f"  {said}" for said in (hidden, judged_by(found.get("judge") or {})) if said),
    ]


def judged_by(judge: Mapping[str, Any]) -> str:
    """Say whose truth had a part in the coefficients that judged, from :func:`anmi.judging.fusing.provenance`.

    Examples
    --------
    >>> judged_by({"without": "api_docs", "fitted_on": ["scifact"]})
    'scored with coefficients fitted without api_docs'
    >>> judged_by({"without": None, "fitted_on": ["api_docs", "scifact"]})
    'scored with coefficients fitted on api_docs, scifact, so in-sample on these'
    """
    if not judge:
        return ""
    if judge["without"]:
        return f"scored with coefficients fitted without {judge['without']}"
    return f"scored with coefficients fitted on {', '.join(judge['fitted_on'])}, so in-sample on these"


def of_the_hardest(found: Mapping[str, Any], least: int) -> str:
    """Say in words what the lines of the figure of nearness say; nothing of fewer than ``least`` candidates."""
    shares = []
    for name in ("chosen", "rejected"):
        bins = zip(found["edges"], found[name]["judged"], found[name]["expected"], strict=False)
        hardest = [(count, count * share) for low, count, share in bins if low >= 0 and count]
        if sum(count for count, _ in hardest) < least:
            return ""
        share = sum(part for _, part in hardest) / sum(count for count, _ in hardest)
        shares.append(f"{100 * share:.1f} % of the {name} ones")
    return f" At least as near as the positive, by the judge {' and '.join(shares)} are relevant."
