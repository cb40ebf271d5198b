"""One rule for what dev queries choose: how much training is kept, and what parts weigh.

An option is a point x in a small space. Its mean nDCG@10 is u(x), up to a constant. Before any
query of the collection was asked, u is a Gaussian process whose mean falls from the point that was
best on other collections, -fall · |x - best|², and whose deviation from that is smooth. Labelled
dev queries measure u, each with an error of its own; pseudo-queries measure u and a lean, which is
a Gaussian process, too: they are made of their document's words, so that they overrate what finds
words. By Bayes' rule both count by their precision: three labels a little, three hundred decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from anmi import seeds
from anmi.ragged import Bools, Float64s

STREAM: Final = "evaluation/choice"
# What a query about a document with a training label counts at least.
LEAST_SHARE: Final = 0.25
# Standard deviation of nDCG@10 over queries, and that of how its change with a step of 1 differs
# between queries.
_HARDNESS: Final = 0.35
_QUERY_SPREAD: Final = 0.3
# Queries that the two are worth beside the covariance that is measured.
_QUERIES: Final = 20
# A variance that says nothing of the mean of all options.
_UNKNOWN: Final = 100.0
# A smaller difference of expected nDCG@10 decides nothing.
_AS_GOOD: Final = 0.002
_DRAWS: Final = 1000


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
    >>> worse = np.tile([0.75, 0.73, 0.7], (300, 1))
    >>> few, many = (choose(options, prior, worse[:n], np.ones(n), seed=1) for n in (3, 300))
    >>> few.point.tolist(), many.point.tolist()
    ([1.0], [0.0])
    """
    distances = np.square(options[:, None] - options[None]).sum(axis=2)
    kernel = np.exp(-distances / (2 * prior.reach**2))
    expected = -prior.fall * np.square(options - np.array(prior.best)).sum(axis=1)
    precision = _inverse(prior.spread**2 * kernel)
    evidence = precision @ expected
    for values, weights, lean, lean_spread in (
        (labelled, query_weights, None, 0.0),
        (pseudo, None, prior.lean, prior.lean_spread),
    ):
        if values is None or not len(values):
            continue
        measured, covariance = _mean(values, weights, kernel)
        if lean:
            measured = measured - options @ np.array(lean)
        of_source = _inverse(covariance + lean_spread**2 * kernel)
        precision = precision + of_source
        evidence = evidence + of_source @ measured
    covariance = _inverted(precision)
    mean = covariance @ evidence
    is_as_good = mean > mean.max() - _AS_GOOD
    draws = seeds.stream(seed, STREAM).multivariate_normal(
        mean, covariance, size=_DRAWS, method="eigh"
    )
    best = options[draws.argmax(axis=1)]
    low, high = np.quantile(best, [0.025, 0.975], axis=0)
    return Choice(options[is_as_good].mean(axis=0), low, high)


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
    share = np.clip(count / max(labelled, 1), LEAST_SHARE, 1) if count else 1.0
    return np.where(unlabelled, 1.0, share)


def _mean(
    values: Float64s, weights: Float64s | None, kernel: Float64s
) -> tuple[Float64s, Float64s]:
    """Return the mean over queries, [K], and the covariance of its error, [K, K]."""
    shares = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
    # Queries of unlike weight say as much as so many of the same.
    queries = 1 / np.square(shares).sum()
    mean = shares @ values
    deviations = values - mean
    measured = (deviations * shares[:, None]).T @ deviations
    expected = _HARDNESS**2 + _QUERY_SPREAD**2 * kernel
    per_query = (queries * measured + _QUERIES * expected) / (queries + _QUERIES)
    return mean, per_query / queries


def _inverse(covariance: Float64s) -> Float64s:
    """Return the precision of what is known up to a constant that all options share."""
    ridge = 1e-8 * np.eye(len(covariance))
    return _inverted(covariance + _UNKNOWN + ridge)


def _inverted(matrix: Float64s) -> Float64s:
    return np.asarray(np.linalg.inv(matrix), np.float64)
