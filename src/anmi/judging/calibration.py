"""From raw scores of a judge to probabilities of relevance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anmi.errors import AnmiError


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

    def __call__(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        """Return probabilities of the shape of ``scores``; NaN stays NaN."""
        result: NDArray[np.float64] = expit(self.slope * np.asarray(scores, np.float64) + self.intercept)
        return result

    def as_dict(self) -> dict[str, float]:
        """Return the two coefficients."""
        return asdict(self)


def fit_platt(scores: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None) -> Platt:
    """Fit Platt scaling on labelled scores.

    Parameters
    ----------
    scores, labels
        [n]; labels are 1 for relevant and 0 otherwise; NaN scores are left out.
    weights
        Of the examples, [n].

    Raises
    ------
    AnmiError
        When only one class is present.
    """
    from sklearn.linear_model import LogisticRegression

    known = np.isfinite(scores)
    scores, labels = np.asarray(scores)[known], np.asarray(labels)[known]
    weights = None if weights is None else np.asarray(weights)[known]
    if len(np.unique(labels)) < 2:
        raise AnmiError("calibration needs judged positives and judged candidates, and found only one kind; judge more")
    centre, spread = float(scores.mean()), float(scores.std()) or 1.0
    model = LogisticRegression(C=1e6).fit(((scores - centre) / spread)[:, None], labels, sample_weight=weights)
    slope = float(model.coef_[0, 0]) / spread
    return Platt(slope, float(model.intercept_[0]) - slope * centre)


def reliability(
    probabilities: NDArray[Any], labels: NDArray[Any], bins: int = 10, weights: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Compare predicted probabilities with observed frequencies.

    Returns
    -------
    dict
        ``bins``: list of ``{predicted, observed, count}``; ``expected_calibration_error``: their mean distance.
    """
    weights = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    place = np.minimum((np.asarray(probabilities) * bins).astype(int), bins - 1)
    mass = np.bincount(place, weights=weights, minlength=bins)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(place, weights=weights * probabilities, minlength=bins) / mass
        observed = np.bincount(place, weights=weights * labels, minlength=bins) / mass
    used = mass > 0
    error = float((mass[used] * np.abs(predicted - observed)[used]).sum() / mass.sum()) if used.any() else 0.0
    count = np.bincount(place, minlength=bins)
    rows = [
        {"predicted": float(predicted[i]), "observed": float(observed[i]), "count": int(count[i])}
        for i in np.nonzero(used)[0]
    ]
    return {"bins": rows, "expected_calibration_error": error}
