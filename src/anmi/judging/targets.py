"""Thresholds on a probability of relevance, chosen by what they are to achieve instead of by feeling.

Documents at or above a threshold are rejected as negatives; those below it stay in play.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from anmi.errors import AnmiError
from anmi.judging.calibration import labelled

Guarantee = Literal["estimate", "upper"]


@dataclass(frozen=True)
class Target:
    """A threshold and what it lets pass on held-out labels.

    Attributes
    ----------
    threshold
        Documents with a probability at or above it are rejected.
    rate
        False-negative rate: share of the relevant documents below the threshold, 0 to 1.
    low, high
        Clopper–Pearson interval of the rate.
    positives
        Relevant documents it was measured on.
    kept_share
        Share of the other documents below the threshold, 0 to 1: what is left to draw negatives from.
    """

    threshold: float
    rate: float
    low: float
    high: float
    positives: int
    kept_share: float


@dataclass(frozen=True)
class LeakTarget:
    """A threshold, the expected share of relevant documents among those below it, and how many those are."""

    threshold: float
    leak: float
    kept: int
    kept_share: float


def clopper_pearson(
    count: NDArray[Any] | float, total: float, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the exact two-sided interval of a share (Clopper & Pearson 1934).

    Parameters
    ----------
    count
        Successes, of any shape, 0 to ``total``; need not be whole, which weighted examples use.
    total
        Trials, above 0.
    confidence
        Least coverage, between 0 and 1.

    Examples
    --------
    >>> low, high = clopper_pearson(2, 100)
    >>> round(float(low), 4), round(float(high), 4)
    (0.0024, 0.0704)
    """
    tail = (1 - confidence) / 2
    successes = np.asarray(count, np.float64)
    failures = np.maximum(total - successes, 0.0)
    with np.errstate(invalid="ignore"):
        low = np.where(successes <= 0, 0.0, betaincinv(successes, failures + 1, tail))
        high = np.where(failures <= 0, 1.0, betaincinv(successes + 1, failures, 1 - tail))
    return low, high


def positives_needed(max_false_negative_rate: float, confidence: float = 0.95) -> int:
    """Return how many positives it takes, none of them below the threshold, for the upper end to meet the target.

    Examples
    --------
    >>> positives_needed(0.02)
    183
    """
    return math.ceil(math.log((1 - confidence) / 2) / math.log1p(-max_false_negative_rate))


def threshold_for(
    probabilities: NDArray[Any],
    labels: NDArray[Any],
    max_false_negative_rate: float,
    confidence: float = 0.95,
    weights: NDArray[Any] | None = None,
    guarantee: Guarantee = "estimate",
) -> Target:
    """Return the highest threshold that lets at most a given share of the relevant documents pass as negatives.

    Parameters
    ----------
    probabilities, labels
        Of held-out documents, [n]: judged by a model that did not see their labels. Labels are 1 for relevant and 0
        otherwise; NaN probabilities are left out.
    max_false_negative_rate
        Share of the relevant documents that may stay below the threshold, from 0 up to, not including, 1.
    confidence
        Of the interval, between 0 and 1.
    weights
        Of the documents, [n]; the interval then counts (Σw)²/Σw² documents (Kish's effective size).
    guarantee
        ``estimate`` asks that the observed rate meets the target; ``upper`` that the upper end of its interval does.

    Notes
    -----
    The interval stays valid although threshold and rate come from the same positives: with a continuous probability
    and no weights the threshold is the (k+1)-th smallest of n positives, k being fixed by target and n alone, so its
    true rate is Beta(k+1, n−k), whose upper quantile *is* the upper end, and is stochastically above Beta(k, n−k+1),
    whose lower quantile is the lower end. With ``upper`` the true rate exceeds the target with probability at most
    (1 − confidence)/2 whatever the distribution, as the rate rises with the threshold (Bates et al. 2021). Both take
    the documents for independent; several positives of one query are less than that.

    Raises
    ------
    AnmiError
        Labels of one class only, a target outside its range, or, with ``upper``, too few positives for any threshold.

    Examples
    --------
    >>> target = threshold_for(np.array([0.1, 0.6, 0.8, 0.9, 0.2, 0.7]), np.array([1, 1, 1, 1, 0, 0]), 0.25)
    >>> target.threshold, target.rate, target.kept_share
    (0.6, 0.25, 0.5)
    """
    if not (0 <= max_false_negative_rate < 1 and 0 < confidence < 1):
        raise AnmiError(
            f"max_false_negative_rate {max_false_negative_rate:g} at confidence {confidence:g} is out of range; "
            "give a rate from 0 to below 1 and a confidence between 0 and 1"
        )
    probability, relevant, weight = labelled(probabilities, labels, weights)
    # Between two probabilities of positives the rate stands still, so the highest threshold is one of them.
    values, below = _mass_below(probability[relevant], weight[relevant])
    total = float(weight[relevant].sum())
    size = total**2 / float((weight[relevant] ** 2).sum())
    rates = below / total
    low, high = clopper_pearson(rates * size, size, confidence)
    allowed = (rates if guarantee == "estimate" else high) <= max_false_negative_rate
    if not allowed.any():
        needed = positives_needed(max_false_negative_rate, confidence) if max_false_negative_rate else None
        raise AnmiError(
            f"no threshold can guarantee max_false_negative_rate {max_false_negative_rate:g} at confidence "
            f"{confidence:g} on {size:.0f} held-out positives; "
            + (f"{needed} are needed: judge more, or " if needed else "none ever can for 0: ")
            + 'raise the rate, or ask for guarantee "estimate"'
        )
    best = int(np.flatnonzero(allowed)[-1])
    threshold, others = float(values[best]), ~relevant
    kept = float(weight[others & (probability < threshold)].sum() / weight[others].sum())
    return Target(
        threshold, float(rates[best]), float(low[best]), float(high[best]), int(np.count_nonzero(relevant)), kept
    )


def expected_leak(probabilities: NDArray[Any], threshold: float | None = None) -> float:
    """Return the mean probability of the documents below a threshold: the share of them expected to be relevant.

    Parameters
    ----------
    probabilities
        Calibrated, of any shape; NaN is left out.
    threshold
        None takes all documents.

    Returns
    -------
    float
        0 to 1; NaN when no document is below the threshold.

    Examples
    --------
    >>> expected_leak(np.array([0.0, 0.25, 0.75, np.nan]), 0.5)
    0.125
    """
    known = _finite(probabilities)
    kept = known if threshold is None else known[known < threshold]
    return float(kept.mean()) if len(kept) else math.nan


def threshold_for_leak(probabilities: NDArray[Any], max_leak: float) -> LeakTarget:
    """Return the highest threshold whose expected leak meets a target; it needs no labels, but calibration.

    Parameters
    ----------
    probabilities
        Calibrated, of the candidates negatives are drawn from, of any shape; NaN is left out.
    max_leak
        Share of the kept that may be expected to be relevant, 0 to 1.

    Returns
    -------
    LeakTarget
        Its threshold is the lowest probability that is rejected; 1 when all stay (infinite when some are exactly 1).

    Raises
    ------
    AnmiError
        No finite probability, or even the least relevant document exceeds the target.

    Examples
    --------
    >>> threshold_for_leak(np.array([0.0, 0.1, 0.2, 0.9]), 0.12).threshold
    0.9
    """
    known = _finite(probabilities)
    if not len(known):
        raise AnmiError("max_leak needs probabilities and found none that is finite; judge the candidates first")
    values, first = np.unique(known, return_index=True)
    last = np.append(first[1:], len(known))
    leaks = np.cumsum(known)[last - 1] / last
    allowed = np.flatnonzero(leaks <= max_leak)
    if not len(allowed):
        raise AnmiError(
            f"max_leak {max_leak:g} cannot be met: the least relevant candidate has probability {values[0]:.3g}; "
            "raise it, or use a judge that is surer of easy candidates"
        )
    best = int(allowed[-1])
    beyond = 1.0 if values[-1] < 1 else math.inf
    threshold = float(values[best + 1]) if best + 1 < len(values) else beyond
    return LeakTarget(threshold, float(leaks[best]), int(last[best]), int(last[best]) / len(known))


def _finite(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    values = np.asarray(probabilities, np.float64).ravel()
    return np.sort(values[np.isfinite(values)])


def _mass_below(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct values, rising, and the weight strictly below each."""
    distinct, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place, weights=weights)
    return distinct, np.concatenate([[0.0], np.cumsum(mass)[:-1]])
