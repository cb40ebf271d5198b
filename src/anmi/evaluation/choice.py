"""One rule for what dev queries choose: how much training is kept, and what parts weigh.

An option is a point x in a small space. Its mean nDCG@10 is u(x), up to a constant. Before any
query of the collection was asked, u is a Gaussian process whose mean falls from the point that was
best on other collections, -fall · |x - best|², and whose deviation from that is smooth. Labelled
dev queries measure u, with an error that falls with their number; pseudo-queries measure u and a
lean, since they are made of their document's words and overrate what finds words. By Bayes' rule
both count by their precision: three labels count a little, and three hundred decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import helmert

from anmi import seeds
from anmi.ragged import Bools, Float64s

STREAM: Final = "evaluation/choice"
# What a query about a document with a training label counts at least.
LEAST_SHARE: Final = 0.25
# How queries differ in what they say of two options: the variance, which grows with their distance,
# at a distance of 1.
_QUERY_VARIANCE: Final = 0.2
# That variance counts as if so many queries had shown it, beside those that are there.
_QUERIES: Final = 20
# A smaller difference of expected nDCG@10 decides nothing.
_AS_GOOD: Final = 0.002
_DRAWS: Final = 1000
_RIDGE: Final = 1e-9


@dataclass(frozen=True)
class Prior:
    """What other collections say of an option, in nDCG@10.

    Attributes
    ----------
    best
        The point that was best on average, [D].
    fall
        Loss at a distance of 1 from it; it grows with the square.
    spread
        Standard deviation between collections of the difference from that curve.
    reach
        Distance at which two options' differences are still alike (the kernel's length).
    lean
        What pseudo-queries overrate, a step of 1 in each direction, [D].
    lean_spread
        Standard deviation of that between collections.
    """

    best: tuple[float, ...]
    fall: float
    spread: float
    reach: float
    lean: tuple[float, ...] = ()
    lean_spread: float = 0.0


@dataclass(frozen=True)
class Choice:
    """The point that is taken, [D], and where the best one is by 95 %: ``low`` to ``high``, [D]."""

    point: Float64s
    low: Float64s
    high: Float64s


def choose(
    options: Float64s,
    prior: Prior,
    labelled: Float64s,
    query_weights: Float64s,
    pseudo: Float64s | None = None,
    *,
    seed: int,
) -> Choice:
    """Return the option whose expected nDCG@10 is highest, the middle of several that are as good.

    Parameters
    ----------
    options
        Points, [K, D].
    prior
        What is known of them before any query.
    labelled
        nDCG@10 of labelled dev queries by option, [Q, K]; Q may be 0.
    query_weights
        What each of these queries counts, [Q], see :func:`balanced`.
    pseudo
        nDCG@10 of pseudo-queries by option, [P, K]; None or P = 0 where there are none.
    seed
        Of the draws from what is left uncertain, which ``low`` and ``high`` are of.

    Examples
    --------
    >>> options = np.array([[0.0], [0.5], [1.0]])
    >>> prior = Prior(best=(1.0,), fall=0.02, spread=0.05, reach=1.0)
    >>> worse = np.tile([0.72, 0.71, 0.7], (300, 1))
    >>> few, many = (choose(options, prior, worse[:n], np.ones(n), seed=1) for n in (3, 300))
    >>> few.point.tolist(), many.point.tolist()
    ([1.0], [0.0])
    """
    if len(options) == 1:
        return Choice(options[0], options[0], options[0])
    distances = np.linalg.norm(options[:, None] - options[None], axis=2)
    # Differences between options, since nothing is known of what all have in common.
    contrasts = helmert(len(options))
    kernel = np.exp(-np.square(distances / prior.reach) / 2)
    kernel = contrasts @ kernel @ contrasts.T
    per_query = -_QUERY_VARIANCE / 2 * contrasts @ distances @ contrasts.T
    squared_distances = np.square(options - np.array(prior.best)).sum(axis=1)
    expected = -prior.fall * squared_distances
    precision = _inverse(prior.spread**2 * kernel)
    evidence = precision @ (contrasts @ expected)
    if len(labelled):
        mean, covariance = _mean(labelled @ contrasts.T, query_weights, per_query)
        of_labelled = _inverse(covariance)
        precision = precision + of_labelled
        evidence = evidence + of_labelled @ mean
    if pseudo is not None and len(pseudo):
        equal_weights = np.ones(len(pseudo))
        mean, covariance = _mean(pseudo @ contrasts.T, equal_weights, per_query)
        lean = contrasts @ (options @ np.array(prior.lean))
        of_pseudo = _inverse(covariance + prior.lean_spread**2 * kernel)
        precision = precision + of_pseudo
        evidence = evidence + of_pseudo @ (mean - lean)
    covariance = _inverse(precision)
    mean = covariance @ evidence
    draws = seeds.stream(seed, STREAM).multivariate_normal(
        mean, covariance, size=_DRAWS, method="eigh"
    )
    mean = mean @ contrasts
    draws = draws @ contrasts
    is_as_good = mean > mean.max() - _AS_GOOD
    point = options[is_as_good].mean(axis=0)
    nearest = np.linalg.norm(options - point, axis=1).argmin()
    if not is_as_good[nearest]:
        # They lie apart, with worse ones between them.
        point = options[mean.argmax()]
    best = options[draws.argmax(axis=1)]
    low, high = np.quantile(best, [0.025, 0.975], axis=0)
    return Choice(point, low, high)


def balanced(unlabelled: Bools) -> Float64s:
    """Return what each query counts, in [0.25, 1].

    Queries about documents that training has labels of count together at most as much as the
    others, each a quarter at least: a retriever is better on documents that it was trained to find,
    and would look better than it is elsewhere.

    Parameters
    ----------
    unlabelled
        Whether training saw none of the query's relevant documents as a positive, [Q].

    Examples
    --------
    >>> balanced(np.array([True, False, False])).tolist()
    [1.0, 0.5, 0.5]
    """
    count = int(unlabelled.sum())
    labelled = len(unlabelled) - count
    share = 1.0
    if count:
        share = np.clip(count / max(labelled, 1), LEAST_SHARE, 1)
    return np.where(unlabelled, 1.0, share)


def _mean(
    values: Float64s,
    weights: Float64s,
    per_query: Float64s,
) -> tuple[Float64s, Float64s]:
    """Return the mean over queries and the covariance of its error.

    It has the form of ``per_query``, and only its size is measured: queries are too few for the
    covariance of many options.
    """
    shares = weights / weights.sum()
    # Queries of unlike weight say as much as so many of the same.
    queries = 1 / np.square(shares).sum()
    mean = shares @ values
    squares = np.square(values - mean).sum(axis=1)
    measured = shares @ squares / np.trace(per_query)
    size = (queries * measured + _QUERIES) / (queries + _QUERIES)
    return mean, size * per_query / queries


def _inverse(matrix: Float64s) -> Float64s:
    ridge = _RIDGE * np.eye(len(matrix))
    return np.asarray(np.linalg.inv(matrix + ridge), np.float64)
