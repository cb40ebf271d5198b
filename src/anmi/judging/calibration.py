"""Platt scaling turns the raw scores of a judge into probabilities of relevance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.ragged import Bools, Float64s


@dataclass(frozen=True)
class Platt:
    """P(relevant | score) = σ(slope · score + intercept) (Platt 1999).

    Examples
    --------
    >>> round(float(Platt(slope=2.0, intercept=0.0)(np.array([0.0]))[0]), 2)
    0.5
    """

    slope: float
    intercept: float

    def __call__(self, scores: NDArray[Any]) -> Float64s:
        """Return probabilities of the shape of ``scores``; NaN stays NaN."""
        return scipy.special.expit(self.slope * np.asarray(scores, np.float64) + self.intercept)


def scored_examples(
    scores: NDArray[Any],
    labels: NDArray[Any],
    weights: NDArray[Any] | float = 1.0,
) -> tuple[Float64s, Bools, Float64s]:
    """Return scores, labels and weights of the examples that have a score and a weight."""
    score = np.asarray(scores, np.float64)
    weight = np.broadcast_to(np.asarray(weights, np.float64), np.shape(scores))
    is_used = np.isfinite(score) & (weight > 0)
    if not is_used.any():
        raise AnmiError(
            f"calibration found no finite score among {len(score)}; check what the judge returns"
        )
    relevant = np.asarray(labels)[is_used] == 1
    if relevant.all() or not relevant.any():
        raise AnmiError(
            "calibration needs judged positives and judged candidates, and found only one kind;"
            " judge more"
        )
    return score[is_used], relevant, weight[is_used]


def fit_platt(
    scores: NDArray[Any],
    labels: NDArray[Any],
    weights: NDArray[Any] | float = 1.0,
) -> Platt:
    """Fit Platt scaling on labelled scores.

    Parameters
    ----------
    scores, labels
        [n]; labels are 1 for relevant and 0 otherwise; NaN scores are left out.
    weights
        Of the examples, [n], or of all.

    Raises
    ------
    AnmiError
        There is no finite score, or only one class.
    """
    from sklearn.linear_model import LogisticRegression

    score, relevant, weight = scored_examples(scores, labels, weights)
    centre = float(score.mean())
    spread = float(score.std()) or 1.0
    model = LogisticRegression(C=1e6).fit(
        ((score - centre) / spread)[:, None], relevant, sample_weight=weight
    )
    slope = float(model.coef_[0, 0]) / spread
    return Platt(slope, float(model.intercept_[0]) - slope * centre)


def cross_fitted(
    scores: NDArray[Any],
    labels: NDArray[Any],
    folds: NDArray[Any],
    fit: Callable[[NDArray[Any], NDArray[Any]], Platt] = fit_platt,
) -> tuple[Float64s, dict[int, Platt]]:
    """Calibrate each score by a calibrator that did not see its fold.

    Parameters
    ----------
    scores, labels
        [n]; see :func:`fit_platt`.
    folds
        Fold of each score, [n] integers of at least two kinds. Examples that know of each other,
        such as those of one query, belong in one fold.
    fit
        Makes a calibrator from scores and labels.

    Returns
    -------
    probabilities, calibrators
        [n], NaN where the score is; and by fold the calibrator of its scores, fitted on all other
        folds.

    Raises
    ------
    AnmiError
        Too few labels outside a fold, which is named.
    """
    score = np.asarray(scores, np.float64)
    label = np.asarray(labels)
    fold = np.asarray(folds)
    probabilities = np.full(len(score), np.nan)
    calibrators: dict[int, Platt] = {}
    for number in np.unique(fold).tolist():
        inside = fold == number
        try:
            calibrators[number] = fit(score[~inside], label[~inside])
        except AnmiError as error:
            raise AnmiError(f"without fold {number}: {error}") from error
        probabilities[inside] = calibrators[number](score[inside])
    return probabilities, calibrators


def reliability(
    probabilities: NDArray[Any],
    labels: NDArray[Any],
    bins: int = 10,
    weights: NDArray[Any] | None = None,
) -> dict[str, Any]:
    """Compare predicted probabilities with observed frequencies; NaN probabilities are left out.

    Returns
    -------
    dict
        ``bins``: list of ``{predicted, observed, count}``; ``expected_calibration_error``: their
        mean distance.
    """
    columns = {"predicted": probabilities, "observed": labels, "weight": 1.0}
    table = pd.DataFrame(columns | ({} if weights is None else {"weight": weights}))
    table = table[np.isfinite(table.predicted)].astype(float)
    bin_number = np.minimum((table.predicted * bins).astype(int), bins - 1)
    mass = table.weight.groupby(bin_number).sum()
    mass = mass[mass > 0]
    weighted = table[["predicted", "observed"]].mul(table.weight, axis=0)
    means = weighted.groupby(bin_number).sum().loc[mass.index].div(mass, axis=0)
    distance = (means.predicted - means.observed).abs()
    error = float((mass * distance).sum() / mass.sum()) if len(mass) else 0.0
    rows = means.assign(count=bin_number.value_counts()).to_dict("records")
    return {"bins": rows, "expected_calibration_error": error}


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
        95 % Clopper–Pearson interval of the rate. It stays valid although threshold and rate come
        from the same positives: with a continuous probability the threshold is the (k+1)-th
        smallest of n, k being fixed by target and n alone, so its true rate is Beta(k+1, n−k),
        whose upper quantile *is* the upper end. It takes documents for independent; several
        positives of one query are less than that.
    positives
        Relevant documents it was measured on.
    """

    threshold: float
    rate: float
    low: float
    high: float
    positives: int


def threshold_for(
    probabilities: NDArray[Any],
    labels: NDArray[Any],
    max_false_negative_rate: float,
) -> Target:
    """Return the highest threshold that lets a share of the relevant documents pass at most.

    Parameters
    ----------
    probabilities, labels
        Of held-out documents, [n]: judged by a model that did not see their labels. Labels are 1
        for relevant and 0 otherwise; NaN probabilities are left out.
    max_false_negative_rate
        Share of the relevant documents that may stay below the threshold, from 0 up to, not
        including, 1.

    Raises
    ------
    AnmiError
        Labels of one class only, or a target outside its range.

    Examples
    --------
    >>> probabilities = np.array([0.1, 0.6, 0.8, 0.9, 0.2, 0.7])
    >>> target = threshold_for(probabilities, np.array([1, 1, 1, 1, 0, 0]), 0.25)
    >>> target.threshold, target.rate
    (0.6, 0.25)
    """
    from scipy.stats import binomtest

    if not 0 <= max_false_negative_rate < 1:
        raise AnmiError(
            f"max_false_negative_rate {max_false_negative_rate:g} is out of range; give a rate from"
            " 0 to below 1"
        )
    probability, relevant, _ = scored_examples(probabilities, labels)
    # Between two probabilities of positives the rate stands still, so the highest threshold is one
    # of them.
    values, count = np.unique(probability[relevant], return_counts=True)
    below = np.cumsum(count) - count
    positives = int(count.sum())
    best = int(np.flatnonzero(below / positives <= max_false_negative_rate)[-1])
    threshold = float(values[best])
    passed = int(below[best])
    interval = binomtest(passed, positives).proportion_ci()
    return Target(
        threshold,
        passed / positives,
        float(interval.low),
        float(interval.high),
        positives,
    )
