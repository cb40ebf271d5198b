"""From the cells of an ablation to its table: means, intervals, tests, and what they say of each recipe.

A cell is one training: collection × recipe × seed. Of a query the mean over seeds counts, queries are what is
resampled, and the tests are paired by query. Where more is known to be relevant than the labels say, every figure
stands twice: by the ``original`` labels and by the ``completed`` ones, which are the better truth; the two disagree
about clean negatives, since incomplete labels reward a model for pushing down what is relevant but unlabelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from anmi.evaluation.generalisation import BUCKETS
from anmi.evaluation.significance import compare, holm, interval
from anmi.seeds import stream

ORIGINAL: Final = "original"
COMPLETED: Final = "completed"
BEST_KNOWN: Final = "best known"
METRIC: Final = "ndcg@10"
# Of BM25 and the recipe's encoder together, in the tables of queries.
HYBRID: Final = f"hybrid_{METRIC}"
KINDS: Final = ("documents", "hardness")
_ORDER: Final = (*BUCKETS, "easy", "medium", "hard")
# Resamples in memory at once.
_BATCH: Final = 50
_MEANS: Final = ("train_seconds", "search_seconds", "memory_mb")
_PER_RECIPE: Final = (
    "false_negative_rate",
    "false_negative_rate_low",
    "false_negative_rate_high",
    "false_negative_rate_from",
    "coverage",
    "rows",
    "promoted",
)


@dataclass(frozen=True)
class Design:
    """What is compared with what.

    Attributes
    ----------
    encoder
        Trained in all cells.
    recipes, collections
        In the order of the tables.
    baseline
        Recipe all others are tested against.
    focus
        Recipe that is tested against each other one; None for none.
    ours
        Recipes that have to earn their place.
    seed, resamples, confidence
        Of bootstrap and permutation; see :func:`anmi.evaluation.significance.compare`.
    level
        A p-value after Holm's correction below it counts as a difference, in (0, 1).
    """

    encoder: str
    recipes: Sequence[str]
    collections: Sequence[str]
    baseline: str
    focus: str | None = None
    ours: Sequence[str] = field(default=())
    seed: int = 1
    resamples: int = 10_000
    confidence: float = 0.95
    level: float = 0.05

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the resampling."""
        return {"seed": self.seed, "resamples": self.resamples, "confidence": self.confidence}


def table(cells: pd.DataFrame, queries: pd.DataFrame, design: Design) -> list[dict[str, Any]]:
    """Return a row per collection, judgments and recipe.

    ``cells`` are the finished ones, ``queries`` their metrics with the kind of each query, ``documents`` and
    ``hardness``. A row has nDCG@10 with its interval; ``spread``, the standard deviation of the seeds' means (None with
    one seed); the differences to baseline and focus with p-values, raw and after Holm; ``buckets``, by kind of query
    its number and nDCG@10; and what is known of the recipe's cells, of which times in seconds and memory in MiB are
    means over seeds. What cannot be is None: the test of a recipe against itself.
    """
    rows = []
    for collection in design.collections:
        for judgments in (COMPLETED, ORIGINAL):
            chosen = queries[(queries.collection == collection) & (queries.judgments == judgments)]
            rows += _of_collection(chosen, cells[cells.collection == collection], collection, judgments, design)
    return rows


def _of_collection(
    queries: pd.DataFrame, cells: pd.DataFrame, collection: str, judgments: str, design: Design
) -> list[dict[str, Any]]:
    values = per_query(queries, design.recipes)
    to_baseline = _tests(values, design.baseline, design)
    to_focus = _tests(values, design.focus, design)
    kinds = queries.drop_duplicates("query_id").set_index("query_id").reindex(values.index)[list(KINDS)]
    rows = []
    hybrids = per_query(queries, design.recipes, HYBRID) if HYBRID in queries else None
    for recipe in values.columns:
        own = values[recipe].to_numpy()
        mean, low, high = interval(own, **design.settings)
        seeds = queries[queries.recipe == recipe].groupby("seed")[METRIC].mean()
        difference, p_value, p_holm = to_baseline.get(recipe, (None, None, None))
        behind, _, p_focus = to_focus.get(recipe, (None, None, None))
        mine = cells[cells.recipe == recipe]
        rows.append({
            "collection": collection, "encoder": design.encoder, "recipe": recipe, "seed_count": len(seeds),
            "queries": len(values), "judgments": judgments, "ndcg_10": mean, "low": low, "high": high,
            "spread": float(seeds.std()) if len(seeds) > 1 else None,
            "baseline": design.baseline, "difference": difference, "p_value": p_value, "p_holm": p_holm,
            "focus": design.focus, "focus_difference": None if behind is None else -behind, "p_holm_focus": p_focus,
            "buckets": _buckets(values[recipe], kinds),
            **_hybrid(None if hybrids is None else hybrids[recipe], kinds, design),
            **{name: _plain(mine[name].iloc[0]) for name in _PER_RECIPE},
            **{name: float(mine[name].mean()) for name in _MEANS},
        })  # fmt: skip
    return rows


def _hybrid(values: pd.Series[float] | None, kinds: pd.DataFrame, design: Design) -> dict[str, Any]:
    """Return the figures of BM25 and the recipe's encoder together, None where they were not measured."""
    if values is None:
        return dict.fromkeys(("hybrid_ndcg_10", "hybrid_low", "hybrid_high", "hybrid_buckets"))
    mean, low, high = interval(values.to_numpy(), **design.settings)
    found = {"hybrid_ndcg_10": mean, "hybrid_low": low, "hybrid_high": high}
    return found | {"hybrid_buckets": _buckets(values, kinds)}


def _buckets(values: pd.Series[float], kinds: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return number and mean of each kind of query."""
    rows = pd.concat([values.groupby(kinds[name]).agg(["size", "mean"]) for name in kinds]).to_dict("index")
    return {
        name: {"queries": int(rows[name]["size"]), "ndcg_10": float(rows[name]["mean"])}
        for name in _ORDER
        if name in rows
    }


def per_query(queries: pd.DataFrame, recipes: Sequence[str], metric: str = METRIC) -> pd.DataFrame:
    """Return the mean over seeds of every query (rows, sorted by id) and recipe (columns, in the order given)."""
    means = queries.pivot_table(index="query_id", columns="recipe", values=metric, aggfunc="mean")
    return means[[name for name in recipes if name in means.columns]]


def _tests(values: pd.DataFrame, against: str | None, design: Design) -> dict[str, tuple[float, float, float]]:
    """Return difference, p-value and corrected p-value of every other recipe against one."""
    if against is None or against not in values.columns:
        return {}
    others = [name for name in values.columns if name != against]
    second = values[against].to_numpy()
    found = [compare(values[name].to_numpy(), second, **design.settings) for name in others]
    corrected = holm([each.p_value for each in found])
    return {
        name: (each.difference, each.p_value, float(p))
        for name, each, p in zip(others, found, corrected, strict=True)
    }  # fmt: skip


def means(queries: pd.DataFrame, design: Design) -> list[dict[str, Any]]:
    """Return the mean over the collections of each recipe that has cells in all of them, the best first.

    Collections count alike, whatever their number of queries; the interval resamples the queries of each.

    Returns ``recipe, judgments, collections, ndcg_10, low, high``; judgments ``best known`` (completed ones where there
    are such, else the original) and ``original``.
    """
    rows = []
    for judgments in (BEST_KNOWN, ORIGINAL):
        values = [per_query(_judged(queries, name, judgments), design.recipes) for name in design.collections]
        names = [name for name in design.recipes if all(name in found.columns for found in values)]
        if not names:
            continue
        samples = [found[names].to_numpy().T for found in values]
        centre = _mean_of_means(*samples)
        low = high = np.full(len(names), np.nan)
        # One query cannot be resampled.
        if min(sample.shape[1] for sample in samples) > 1:
            low, high = _interval(samples, design)
        for place in np.argsort(-centre, kind="stable"):
            rows.append({
                "recipe": names[place], "judgments": judgments, "collections": len(values),
                "ndcg_10": float(centre[place]), "low": float(low[place]), "high": float(high[place]),
            })  # fmt: skip
    return rows


def _interval(samples: Sequence[NDArray[Any]], design: Design) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the percentile bootstrap interval of the mean over collections, each resampled by its queries."""
    bounds = scipy.stats.bootstrap(
        samples,
        _mean_of_means,
        vectorized=True,
        axis=-1,
        n_resamples=design.resamples,
        batch=_BATCH,
        confidence_level=design.confidence,
        method="percentile",
        rng=stream(design.seed, "ablation/means"),
    ).confidence_interval
    return bounds.low, bounds.high


def _mean_of_means(*samples: NDArray[Any], axis: int = -1) -> NDArray[np.float64]:
    result: NDArray[np.float64] = np.mean([sample.mean(axis=axis) for sample in samples], axis=0)
    return result


def _judged(queries: pd.DataFrame, collection: str, judgments: str) -> pd.DataFrame:
    mine = queries[queries.collection == collection]
    known = judgments == BEST_KNOWN and (mine.judgments == COMPLETED).any()
    return mine[mine.judgments == (COMPLETED if known else ORIGINAL)]


def best_known(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return of each collection the rows by completed judgments, where it has such, else those by the original."""
    with_truth = {row["collection"] for row in rows if row["judgments"] == COMPLETED}
    return [row for row in rows if (row["judgments"] == COMPLETED) == (row["collection"] in with_truth)]


def _plain(value: Any) -> Any:
    """Return a Python value, None for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
