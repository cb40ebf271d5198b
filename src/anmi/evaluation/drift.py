"""Compares the profile of today's training data with that of the champion's, by SciPy.

Every number of a profile is of one query or document, never of a single negative: the negatives of
a query are alike. A verdict needs both: a difference that is not noise (a test, adjusted by Holm)
and one that is large. It is a reason to look, not to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy

from anmi.candidates import OPEN, PADDING, Candidates, CandidateShards
from anmi.corpus.hardness import hardness
from anmi.corpus.texts import document_texts
from anmi.evaluation.diagnostics import SCORE_COLUMNS
from anmi.evaluation.significance import holm

FORMAT: Final = 3
# Values kept of each distribution: enough to be sure of a Kolmogorov-Smirnov distance of 0.07 among
# 30 tests at 0.01.
VALUES: Final = 2_000
# Without as many values on both sides nothing is said.
LEAST_VALUES: Final = 10
# Chance that any of all the tests of a comparison takes noise for a difference: about four nights a
# year.
ALPHA: Final = 0.01
VERDICTS: Final = ("none", "slight", "strong")
# From where on a difference is slight or strong: Kolmogorov-Smirnov distance (0.1: a normal
# distribution shifted by a quarter of its standard deviation), Cohen's h of shares, ratio of
# counts.
LIMITS: Final = {"distributions": (0.1, 0.2), "shares": (0.2, 0.5), "counts": (1.2, 1.5)}
_SCORED: Final = ("positive_", "negative_")
_NAMES: Final = {
    "query_length": "length of queries (words)",
    "document_length": "length of documents (words)",
    "query_hardness": "hardness of queries (0 to 1)",
    "all_negatives": "rows with all negatives",
    "consistent": "queries that passed the consistency filter",
    "dropped": "rows dropped",
}
_SENTENCES: Final = {
    "none": "The training data are like the champion's: nothing differs both surely and by much.",
    "slight": "The training data differ slightly from the champion's.",
    "strong": "The training data differ strongly from the champion's.",
}


def profile(
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
    qrels: pd.DataFrame,
    selection: CandidateShards,
    *,
    negatives: int = 0,
    made_with: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what training data look like, in some hundred kilobytes.

    Parameters
    ----------
    queries, corpus, qrels
        As :class:`anmi.corpus.types.Collection` has them. Only counts look at queries beyond the
        split ``train``.
    selection
        Blocks after selection, a row per query.
    negatives
        Negatives asked for per row.
    made_with
        What scores depend on besides the data, such as recipe and encoder: a comparison names what
        is different.

    Returns
    -------
    dict
        ``format``, ``made_with``, ``counts``, ``distributions`` (a sorted sample of at most 2,000
        values each) and ``shares`` (``share`` and ``count``, of how many queries). What was not
        measured is not in it.
    """
    training = queries[queries["split"] == "train"]
    labels = qrels[qrels["query_id"].isin(training["query_id"])]
    counts = _split_sizes(queries)
    counts |= {"documents": len(corpus), "training_labels": len(labels)}
    training = _sampled(training, "query_id")
    labels = labels[labels["query_id"].isin(training["query_id"])]
    documents = document_texts(_sampled(corpus, "document_id"))
    tables = [pd.DataFrame({"query_id": [], "dropped": []})]
    tables += [
        _measured(block, negatives) for block in selection.only(*SCORE_COLUMNS, "consistent")
    ]
    table = pd.concat(tables[1:] or tables)
    counts["training_rows"] = int((table["dropped"] == 0).sum())
    table = table[table["query_id"].isin(training["query_id"])]
    table = table.groupby("query_id").mean()
    means = {str(name): values.dropna() for name, values in table.items()}
    distributions: dict[str, Any] = {
        "query_length": training["text"].map(_words),
        "document_length": pd.Series(documents).map(_words),
        "query_hardness": hardness(training["text"].tolist(), "script"),
        "positives_per_query": labels.groupby("query_id").size(),
    }
    shares: dict[str, Any] = {}
    for name, values in means.items():
        kind = distributions if name.startswith(_SCORED) else shares
        kind[name] = values
    return {
        "format": FORMAT,
        "made_with": dict(made_with or {}),
        "distributions": {
            name: [float(f"{value:.6g}") for value in np.sort(values)]
            for name, values in distributions.items()
            if len(values)
        },
        "counts": counts,
        "shares": {
            name: {"share": float(values.mean()), "count": len(values)}
            for name, values in shares.items()
        },
    }


def _split_sizes(queries: pd.DataFrame) -> dict[str, int]:
    """Return the number of queries of each split."""
    by_split = queries["split"].value_counts()
    sizes = {}
    for split in ("train", "dev", "test"):
        sizes[f"{split}_queries"] = int(by_split.get(split, 0))
    return sizes


def _words(text: str) -> int:
    return len(text.split())


def _sampled(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return at most so many rows, by hash of their ids: the same ones of a later version."""
    ids = table[key].to_numpy(object)
    hashes = pd.util.hash_array(ids, categorize=False)
    lowest = np.argsort(hashes, kind="stable")[:VALUES]
    return table.iloc[np.sort(lowest)]


def _measured(block: Candidates, negatives: int) -> pd.DataFrame:
    """Return of each row the score of its positive, the mean over its negatives, and its fate."""
    is_used = block.query_verdict == OPEN
    is_labelled = is_used & (block.positives[:, 0] != PADDING)
    has_all = is_used & (block.negatives.sum(axis=1) >= negatives)
    measured: dict[str, Any] = {"all_negatives": has_all, "dropped": ~is_used}
    if "consistent" in block.query_columns:
        measured["consistent"] = block.query_columns["consistent"] > 0
    for name in SCORE_COLUMNS:
        if name in block.positive_columns:
            scores = block.positive_columns[name][:, 0]
            measured[f"positive_{name}"] = np.where(is_labelled, scores, np.nan)
        if name in block.columns:
            scores = block.columns[name]
            is_scored = block.negatives & np.isfinite(scores)
            scores = np.where(is_scored, scores, np.nan)
            means = pd.DataFrame(scores).mean(axis=1)
            measured[f"negative_{name}"] = means.where(is_used).to_numpy()
    return pd.DataFrame(measured, dtype=np.float64).assign(query_id=block.query_ids)


def drift(reference: Mapping[str, Any] | None, current: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the profile of the champion's training data (None without one) with today's.

    Returns
    -------
    dict
        ``compared``; ``verdict``, the worst of all; ``reason`` where nothing could be compared;
        ``different``: what scores depend on besides the data and is not the same; and by kind and
        name rows of ``verdict, size, reference, current, p_value``: ``distributions`` (with means,
        and ``moved``, the Wasserstein distance in standard deviations; size is the
        Kolmogorov-Smirnov distance), ``shares`` (size is Cohen's h) and ``counts`` (size is the
        ratio). p-values are adjusted.

    Examples
    --------
    >>> drift(None, {})["reason"]
    'there is no champion to compare with'
    """
    if not reference:
        return _not_compared("there is no champion to compare with")
    if reference.get("format") != current.get("format"):
        return _not_compared(
            "the champion's profile has another format; the next champion's can be compared"
        )
    results: dict[str, dict[str, Any]] = {}
    rows = []
    for kind, test in _TESTS.items():
        results[kind] = {}
        for name in reference[kind]:
            if name in current[kind]:
                row = test(reference[kind][name], current[kind][name])
                if row is not None:
                    results[kind][name] = row
                    rows.append((LIMITS[kind], row))
    p_values = holm([row["p_value"] for _, row in rows]).tolist()
    worst = 0
    for ((slight, strong), row), p_value in zip(rows, p_values, strict=True):
        grade = 0
        if p_value < ALPHA and row["size"] >= slight:
            grade = 2 if row["size"] >= strong else 1
        worst = max(worst, grade)
        row["p_value"] = p_value
        row["verdict"] = VERDICTS[grade]
    before = reference["made_with"]
    now = current["made_with"]
    different = {
        name: {"reference": before.get(name), "current": now.get(name)}
        for name in before | now
        if before.get(name) != now.get(name)
    }
    return {"compared": True, "verdict": VERDICTS[worst], "different": different, **results}


def _not_compared(reason: str) -> dict[str, Any]:
    return {"compared": False, "verdict": VERDICTS[0], "reason": reason}


def _distributions(reference: Sequence[float], current: Sequence[float]) -> dict[str, Any] | None:
    if min(len(reference), len(current)) < LEAST_VALUES:
        return None
    test = scipy.stats.ks_2samp(reference, current, method="asymp")
    deviation = float(np.std(reference) or np.std(current))
    distance = float(scipy.stats.wasserstein_distance(reference, current))
    return {
        "size": float(test.statistic),
        "moved": distance / deviation if deviation else 0.0,
        "reference": float(np.mean(reference)),
        "current": float(np.mean(current)),
        "p_value": float(test.pvalue),
    }


def _shares(reference: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare shares of queries; each query is one draw."""
    if min(reference["count"], current["count"]) < LEAST_VALUES:
        return None
    shares = np.array([reference["share"], current["share"]])
    counts = np.array([reference["count"], current["count"]])
    table = np.stack([shares * counts, (1 - shares) * counts], axis=1)
    p_value = 1.0
    if table.any(axis=0).all():
        p_value = float(scipy.stats.chi2_contingency(table).pvalue)
    before, now = shares.tolist()
    angle_before = 2 * math.asin(math.sqrt(before))
    angle_now = 2 * math.asin(math.sqrt(now))
    h = abs(angle_now - angle_before)
    return {"size": h, "reference": before, "current": now, "p_value": p_value}


def _counts(reference: int, current: int) -> dict[str, Any]:
    total = reference + current
    # Of two counts at the same rate each of their sum falls to either side with one half.
    p_value = float(scipy.stats.binomtest(current, total).pvalue) if total else 1.0
    if reference and current:
        ratio = max(reference, current) / min(reference, current)
    else:
        # A count that was or is 0 differs by as much as can be.
        ratio = 1e9 if total else 1.0
    return {"size": ratio, "reference": reference, "current": current, "p_value": p_value}


_TESTS: Final[dict[str, Callable[[Any, Any], dict[str, Any] | None]]] = {
    "distributions": _distributions,
    "shares": _shares,
    "counts": _counts,
}


def in_words(comparison: Mapping[str, Any]) -> list[str]:
    """Return the verdict, then what differs, the strong first, then what was made otherwise."""
    if not comparison["compared"]:
        return [f"Drift was not measured: {comparison['reason']}."]
    lines = sorted(_differences(comparison), key=lambda line: not line.startswith("strong"))
    lines += [
        f"{name} was {values['reference']} and is {values['current']}: scores may differ because"
        " of it."
        for name, values in comparison["different"].items()
    ]
    return [_SENTENCES[comparison["verdict"]], *lines]


def _differences(comparison: Mapping[str, Any]) -> Iterator[str]:
    for kind, digits in (("counts", ",.0f"), ("shares", ".1%"), ("distributions", ",.4g")):
        for name, row in comparison[kind].items():
            if row["verdict"] == "none":
                continue
            title = _NAMES.get(name, name.replace("_", " "))
            before = format(row["reference"], digits)
            now = format(row["current"], digits)
            mean = " on average" if kind == "distributions" else ""
            yield f"{row['verdict']}: {title}: {before} before, {now} now{mean}."
