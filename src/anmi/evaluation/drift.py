"""Are today's training data still like those of the champion? A profile of each is kept, and two are compared by SciPy.

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
    wanted: int = 0,
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
    wanted
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
    asked = _sampled(training, "query_id")
    answers = _sampled(corpus, "document_id")
    parts = [_measured(block, wanted) for block in selection.only(*SCORE_COLUMNS, "consistent")]
    table = pd.concat(parts) if parts else pd.DataFrame({"query_id": [], "dropped": []})
    rows = int((table["dropped"] == 0).sum())
    table = table[table["query_id"].isin(asked["query_id"])].groupby("query_id").mean()
    distributions: dict[str, Any] = {
        "query_length": asked["text"].map(_words),
        "document_length": pd.Series(document_texts(answers)).map(_words),
        "query_hardness": hardness(asked["text"].tolist(), "script"),
        "positives_per_query": (
            labels[labels["query_id"].isin(asked["query_id"])].groupby("query_id").size()
        ),
    }
    distributions |= {
        str(name): table[name].dropna() for name in table if str(name).startswith(_SCORED)
    }
    shares = {
        str(name): table[name].dropna() for name in table if not str(name).startswith(_SCORED)
    }
    by_split = queries["split"].value_counts()
    counts = {f"{split}_queries": int(by_split.get(split, 0)) for split in ("train", "dev", "test")}
    kept = {
        name: [float(f"{value:.6g}") for value in np.sort(of)]
        for name, of in distributions.items()
        if len(of)
    }
    return {
        "format": FORMAT,
        "made_with": dict(made_with or {}),
        "distributions": kept,
        "counts": (
            counts
            | {
                "documents": len(corpus),
                "training_labels": len(labels),
                "training_rows": rows,
            }
        ),
        "shares": {
            name: {"share": float(known.mean()), "count": len(known)}
            for name, known in shares.items()
        },
    }


def _words(text: str) -> int:
    return len(text.split())


def _sampled(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return at most so many rows, by hash of their ids, so that versions of a collection keep the same ones."""
    hashes = pd.util.hash_array(table[key].to_numpy(object), categorize=False)
    return table.iloc[np.sort(np.argsort(hashes, kind="stable")[:VALUES])]


def _measured(block: Candidates, wanted: int) -> pd.DataFrame:
    """Return what is measured of each row: the score of its positive, the mean over its negatives, its fate."""
    used = block.query_verdict == OPEN
    found: dict[str, Any] = {
        "all_negatives": used & (block.negatives.sum(axis=1) >= wanted),
        "dropped": ~used,
    }
    if "consistent" in block.query_columns:
        found["consistent"] = block.query_columns["consistent"] > 0
    for name in SCORE_COLUMNS:
        if name in block.positive_columns:
            known = used & (block.positives[:, 0] != PADDING)
            found[f"positive_{name}"] = np.where(known, block.positive_columns[name][:, 0], np.nan)
        if name in block.columns:
            values = np.where(
                block.negatives & np.isfinite(block.columns[name]), block.columns[name], np.nan
            )
            found[f"negative_{name}"] = pd.DataFrame(values).mean(axis=1).where(used).to_numpy()
    return pd.DataFrame(found, dtype=np.float64).assign(query_id=block.query_ids)


def drift(reference: Mapping[str, Any] | None, current: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two profiles: that of what the champion was trained on (None without one), and today's.

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
    if not reference or reference.get("format") != current.get("format"):
        other = "the champion's profile has another format; the next champion's can be compared"
        reason = other if reference else "there is no champion to compare with"
        return {"compared": False, "verdict": "none", "reason": reason}
    tests: dict[str, Callable[[Any, Any], dict[str, Any] | None]]
    tests = {"distributions": _distributions, "shares": _shares, "counts": _counts}
    found = {
        kind: {
            name: row
            for name, old in reference[kind].items()
            if name in current[kind] and (row := test(old, current[kind][name]))
        }
        for kind, test in tests.items()
    }
    rows = [(kind, row) for kind, named in found.items() for row in named.values()]
    for (kind, row), p_value in zip(
        rows, holm([row["p_value"] for _, row in rows]).tolist(), strict=True
    ):
        slight, strong = LIMITS[kind]
        row["p_value"] = p_value
        row["verdict"] = VERDICTS[
            (1 + (row["size"] >= strong)) * (p_value < ALPHA and row["size"] >= slight)
        ]
    made = (reference["made_with"], current["made_with"])
    different = {
        name: {"reference": made[0].get(name), "current": made[1].get(name)}
        for name in dict.fromkeys([*made[0], *made[1]])
        if made[0].get(name) != made[1].get(name)
    }
    worst = max((VERDICTS.index(row["verdict"]) for _, row in rows), default=0)
    return {"compared": True, "verdict": VERDICTS[worst], "different": different, **found}


def _distributions(old: Sequence[float], new: Sequence[float]) -> dict[str, Any] | None:
    if min(len(old), len(new)) < LEAST_VALUES:
        return None
    test = scipy.stats.ks_2samp(old, new, method="asymp")
    spread = float(np.std(old) or np.std(new))
    moved = float(scipy.stats.wasserstein_distance(old, new)) / spread if spread else 0.0
    means = {"reference": float(np.mean(old)), "current": float(np.mean(new))}
    return {"size": float(test.statistic), "moved": moved, **means, "p_value": float(test.pvalue)}


def _shares(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare shares of queries; each query is one draw."""
    if min(old["count"], new["count"]) < LEAST_VALUES:
        return None
    before = old["share"]
    now = new["share"]
    table = np.array(
        [
            [share["share"] * share["count"], (1 - share["share"]) * share["count"]]
            for share in (old, new)
        ]
    )
    p_value = float(scipy.stats.chi2_contingency(table).pvalue) if table.any(axis=0).all() else 1.0
    h = abs(2 * math.asin(math.sqrt(now)) - 2 * math.asin(math.sqrt(before)))
    return {"size": h, "reference": before, "current": now, "p_value": p_value}


def _counts(before: int, now: int) -> dict[str, Any]:
    # Of two counts at the same rate each of their sum falls to either side with one half.
    p_value = float(scipy.stats.binomtest(now, before + now).pvalue) if before + now else 1.0
    # A count that was or is 0 differs by as much as can be.
    size = max(before, now) / min(before, now) if before and now else 1.0 if before == now else 1e9
    return {"size": size, "reference": before, "current": now, "p_value": p_value}


def in_words(found: Mapping[str, Any]) -> list[str]:
    """Return the verdict, then what differs, the strong first, then what was made with something else."""
    if not found["compared"]:
        return [f"Drift was not measured: {found['reason']}."]
    lines = sorted(_differences(found), key=lambda line: not line.startswith("strong"))
    lines += [
        f"{name} was {value['reference']} and is {value['current']}: scores may differ because"
        " of it."
        for name, value in found["different"].items()
    ]
    return [_SENTENCES[found["verdict"]], *lines]


def _differences(found: Mapping[str, Any]) -> Iterator[str]:
    for kind, digits in (("counts", ",.0f"), ("shares", ".1%"), ("distributions", ",.4g")):
        for name, row in found[kind].items():
            if row["verdict"] != "none":
                told = (
                    f"{format(row['reference'], digits)} before,"
                    f" {format(row['current'], digits)} now"
                )
                mean = " on average" if kind == "distributions" else ""
                yield f"{row['verdict']}: {_NAMES.get(name, name.replace('_', ' '))}: {told}{mean}."
