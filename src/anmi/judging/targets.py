"""A threshold on a probability of relevance, chosen by the rate of false negatives that it is to meet.

Documents at or above a threshold are rejected as negatives; those below it stay in play.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.judging.calibration import labelled


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
        95 % Clopper–Pearson interval of the rate. It stays valid although threshold and rate come from the same
        positives: with a continuous probability the threshold is the (k+1)-th smallest of n, k being fixed by target
        and n alone, so its true rate is Beta(k+1, n−k), whose upper quantile *is* the upper end. It takes documents
        for independent; several positives of one query are less than that.
    positives
        Relevant documents it was measured on.
    """

    threshold: float
    rate: float
    low: float
    high: float
    positives: int


def threshold_for(probabilities: NDArray[Any], labels: NDArray[Any], max_false_negative_rate: float) -> Target:
    """Return the highest threshold that lets at most a given share of the relevant documents pass as negatives.

    Parameters
    ----------
    probabilities, labels
        Of held-out documents, [n]: judged by a model that did not see their labels. Labels are 1 for relevant and 0
        otherwise; NaN probabilities are left out.
    max_false_negative_rate
        Share of the relevant documents that may stay below the threshold, from 0 up to, not including, 1.

    Raises
    ------
    AnmiError
        Labels of one class only, or a target outside its range.

    Examples
    --------
    >>> target = threshold_for(np.array([0.1, 0.6, 0.8, 0.9, 0.2, 0.7]), np.array([1, 1, 1, 1, 0, 0]), 0.25)
    >>> target.threshold, target.rate
    (0.6, 0.25)
    """
    from scipy.stats import binomtest

    if not 0 <= max_false_negative_rate < 1:
        raise AnmiError(
            f"max_false_negative_rate {max_false_negative_rate:g} is out of range; give a rate from 0 to below 1"
        )
    probability, relevant, _ = labelled(probabilities, labels)
    # Between two probabilities of positives the rate stands still, so the highest threshold is one of them.
    values, count = np.unique(probability[relevant], return_counts=True)
    below, positives = np.cumsum(count) - count, int(count.sum())
    best = int(np.flatnonzero(below / positives <= max_false_negative_rate)[-1])
    threshold, passed = float(values[best]), int(below[best])
    interval = binomtest(passed, positives).proportion_ci()
    return Target(threshold, passed / positives, float(interval.low), float(interval.high), positives)
