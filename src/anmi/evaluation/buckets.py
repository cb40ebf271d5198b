"""Quality by the hardness of queries: in fixed buckets, and in groups of equal size.

The borders of the buckets are the report's. On real collections nearly all queries are of medium hardness (methods
§4's heuristic gives a question of ten words about 0.4), so groups of equal size tell more; both are offered.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.evaluation.metrics import summarise
from anmi.evaluation.significance import interval

BUCKETS: Final = ("easy", "medium", "hard")
EASY_BELOW: Final = 0.3
HARD_ABOVE: Final = 0.7


def by_bucket(per_query: pd.DataFrame, hardness: pd.Series[float]) -> pd.DataFrame:
    """Average every metric, and describe the ranks, within each bucket.

    Below 0.3 a query is easy, above 0.7 hard. Returns a row per bucket that has queries, easiest first, and last
    ``all``, with the keys of :func:`anmi.evaluation.metrics.summarise` and the mean ``hardness``.
    """
    value = hardness[per_query.index].to_numpy(np.float64)
    names = np.select([value < EASY_BELOW, value > HARD_ABOVE], ["easy", "hard"], default="medium")
    parts: dict[str, NDArray[Any]] = {name: names == name for name in BUCKETS if (names == name).any()}
    parts["all"] = np.ones(len(names), bool)
    rows = {name: summarise(per_query[mask]) | {"hardness": float(value[mask].mean())} for name, mask in parts.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("bucket")


def profile(per_query: pd.DataFrame, hardness: pd.Series[float], metric: str, *, groups: int = 8) -> pd.DataFrame:
    """Return a metric against hardness, in groups of about equal size.

    There are at most ``groups``; queries of equal hardness are never parted, and a group has ten or more, if there are
    so many. Returns means ``hardness`` and ``value``, the bootstrap interval ``low, high`` over the group's queries
    (NaN for a single one) and ``queries``, easiest group first.
    """
    value = hardness[per_query.index].to_numpy(np.float64)
    scores = per_query[metric].to_numpy(np.float64)
    count = max(1, min(groups, len(value) // 10))
    borders = np.unique(np.quantile(value, np.arange(1, count) / count))
    group = np.searchsorted(borders, value, side="right")
    rows = []
    for number in np.unique(group):
        mask = group == number
        mean, low, high = interval(scores[mask], seed=0, resamples=1000)
        rows.append((float(value[mask].mean()), mean, low, high, int(mask.sum())))
    return pd.DataFrame(rows, columns=["hardness", "value", "low", "high", "queries"])
