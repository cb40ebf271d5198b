"""How much the encoder counts beside BM25, by queries that neither was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from anmi import seeds
from anmi.candidates import PADDING
from anmi.retrieval.fusion import Ranked, Spreads, aligned, comparable

STREAM: Final = "search/weight"
GRID: Final = np.linspace(0, 1, 21)
DEFAULT: Final = 0.5
CUT: Final = 10
# Fewer say less than all queries together do, though those are of another kind.
ENOUGH_UNSEEN: Final = 30
_RESAMPLES: Final = 1000
_CELLS: Final = 4_000_000


@dataclass(frozen=True)
class FittedWeight:
    """The weight of an encoder beside BM25, and what it rests on.

    Attributes
    ----------
    weight
        Of the dense scores, in [0, 1].
    low, high
        95 % bootstrap interval over queries of the best weight; 0 and 1 without a query.
    queries
        How many the weight was fitted on.
    kind
        ``unseen``: of whose relevant documents training saw none as a positive; ``all`` where those are too few;
        ``none`` without a query.
    curve
        Mean nDCG@10 of these queries by weight, as pairs.
    bm25, dense
        That of each part alone; NaN without a query.
    """

    weight: float
    low: float
    high: float
    queries: int
    kind: Literal["unseen", "all", "none"]
    curve: tuple[tuple[float, float], ...]
    bm25: float
    dense: float

    @staticmethod
    def unknown() -> FittedWeight:
        """Return the weight without any query: both parts count the same."""
        return FittedWeight(DEFAULT, 0.0, 1.0, 0, "none", (), float("nan"), float("nan"))

    @property
    def hybrid(self) -> float:
        """Mean nDCG@10 at the weight; NaN without a query."""
        if not self.curve:
            return float("nan")
        weights, values = np.array(self.curve).T
        return float(np.interp(self.weight, weights, values))

    def as_dict(self) -> dict[str, Any]:
        """Return everything by name, for JSON."""
        return {
            "weight": self.weight, "low": self.low, "high": self.high, "queries": self.queries, "kind": self.kind,
            "curve": [{"weight": weight, "ndcg@10": value} for weight, value in self.curve],
            "ndcg@10": {
                name: round(value, 4)
                for name, value in (("bm25", self.bm25), ("dense", self.dense), ("hybrid", self.hybrid)) if self.curve
            },
        }  # fmt: skip


def fit_weight(
    bm25: Ranked,
    dense: Ranked,
    spreads: Spreads,
    labelled: NDArray[np.int32],
    grades: NDArray[np.float32],
    unseen: NDArray[np.bool_],
    *,
    seed: int,
) -> FittedWeight:
    """Choose the weight with the best mean nDCG@10.

    Parameters
    ----------
    bm25, dense
        What Q queries found that the encoder was not trained on.
    spreads
        See :func:`anmi.retrieval.fusion.fuse`.
    labelled
        Their labelled documents, int32 [Q, P], padded with -1.
    grades
        Of these documents, float32 [Q, P]; above 0 is relevant.
    unseen
        [Q]; whether training saw none of the query's relevant documents as a positive. Where there are at least 30 of
        them, only they count: an encoder is better on documents that it was trained to find, and would get a weight
        that it does not deserve on all others.
    seed
        Of the resampling.

    Notes
    -----
    The curve is flat around its maximum, so that its best point moves with every query. The weight is the mean of the
    best points of 1,000 bootstrap samples of the queries (bagging). With few queries these lie all over the range and
    their mean is drawn to its middle; a further pull towards 1/2 cost more than it brought already at five queries on
    dev queries of four collections, and so did the best point itself (``benchmarks/fusion.py``).

    Examples
    --------
    >>> right = Ranked(np.array([[1, 2]] * 90, np.int32), np.array([[2.0, 1.0]] * 90, np.float32))
    >>> wrong = Ranked(np.array([[3, 1]] * 90, np.int32), np.array([[2.0, 1.0]] * 90, np.float32))
    >>> truth, grades = np.full((90, 1), 1, np.int32), np.ones((90, 1), np.float32)
    >>> found = fit_weight(wrong, right, Spreads(np.ones(90), 1.0), truth, grades, np.ones(90, bool), seed=1)
    >>> found.weight > 0.6, found.queries, found.kind
    (True, 90, 'unseen')
    """
    chosen = unseen if int(unseen.sum()) >= ENOUGH_UNSEEN else np.ones(len(unseen), bool)
    count = int(chosen.sum())
    if not count:
        return FittedWeight.unknown()
    units = spreads._replace(bm25=spreads.bm25[chosen])
    values = ndcg_by_weight(bm25.of(chosen), dense.of(chosen), units, labelled[chosen], grades[chosen])
    alone = (bm25.of(chosen), dense.of(chosen).top(0), 0), (bm25.of(chosen).top(0), dense.of(chosen), -1)
    parts = [
        float(ndcg_by_weight(sparse, cosines, units, labelled[chosen], grades[chosen])[place].mean())
        for sparse, cosines, place in alone
    ]
    best = bagged(values, seed)
    weight = best.mean()
    low, high = np.quantile(best, [0.025, 0.975])
    curve = tuple((round(float(w), 2), float(v)) for w, v in zip(GRID, values.mean(axis=1), strict=True))
    kind: Literal["unseen", "all"] = "unseen" if chosen is unseen else "all"
    return FittedWeight(round(float(weight), 3), float(low), float(high), count, kind, curve, *parts)


def ndcg_by_weight(
    bm25: Ranked, dense: Ranked, spreads: Spreads, labelled: NDArray[np.int32], grades: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return nDCG@10 of each query by each weight of :data:`GRID`, [W, Q]; see :func:`fit_weight`.

    Linear gain, as in trec_eval; a query without a relevant document has 0.
    """
    values = np.empty((len(GRID), len(labelled)))
    width = bm25.documents.shape[1] + dense.documents.shape[1]
    step = max(1, _CELLS // max(width, 1))
    for start in range(0, len(labelled), step):
        part = slice(start, start + step)
        units = spreads._replace(bm25=spreads.bm25[part])
        values[:, part] = _block(bm25.of(part), dense.of(part), units, labelled[part], np.maximum(grades[part], 0))
    return values


def _block(
    bm25: Ranked, dense: Ranked, spreads: Spreads, labelled: NDArray[np.int32], grades: NDArray[np.float32]
) -> NDArray[np.float64]:
    found = aligned(bm25, dense)
    of_bm25, of_dense = comparable(found, bm25, dense, spreads)
    hidden = found.documents == PADDING
    gains = np.zeros(found.documents.shape)
    for document, grade in zip(labelled.T, grades.T, strict=True):
        gains += np.where((found.documents == document[:, None]) & ~hidden, grade[:, None], 0)
    discounts = 1 / np.log2(np.arange(2, CUT + 2))
    given = np.where(labelled == PADDING, 0, grades)
    top = -np.sort(-given, axis=1)[:, :CUT]
    ideal = top @ discounts[: top.shape[1]]
    rows = []
    for weight in GRID:
        scores = np.where(hidden, -np.inf, weight * of_dense + (1 - weight) * of_bm25)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :CUT]
        reached = np.take_along_axis(gains, order, axis=1)
        rows.append(reached @ discounts[: reached.shape[1]])
    return np.divide(np.array(rows), ideal, out=np.zeros((len(GRID), len(labelled))), where=ideal > 0)


def bagged(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return the best weight of each bootstrap sample of queries, [1,000]; the middle where several are best."""
    count = values.shape[1]
    rng = seeds.stream(seed, STREAM)
    step = max(1, min(_RESAMPLES, _CELLS // count))
    found = []
    for start in range(0, _RESAMPLES, step):
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=min(step, _RESAMPLES - start))
        means = values @ drawn.T / count
        is_best = means >= means.max(axis=0) - 1e-12
        found.append((GRID[:, None] * is_best).sum(axis=0) / is_best.sum(axis=0))
    return np.concatenate(found)
