"""Two Gaussians on one axis, fitted to every row of an array at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MOST_STEPS: Final = 500
_CONVERGED: Final = 1e-7
# Keeps a component from collapsing onto one value; scikit-learn adds the same.
_LEAST_VARIANCE: Final = 1e-6


def total(values: Floats) -> Floats:
    """Sum of each row, [Q, 1], added from left to right, so that zeros at the end of a row change no bit of it.

    Examples
    --------
    >>> total(np.array([[1.0, 2.0, 0.0]])).tolist()
    [[3.0]]
    """
    result: Floats = np.cumsum(values, axis=1)[:, -1:]
    return result


@dataclass(frozen=True)
class Gaussians:
    """A mixture per row, the component of the lower mean first.

    Attributes
    ----------
    means, deviations, shares
        [Q, 2].
    sound
        False where one Gaussian is better by BIC, [Q].
    """

    means: Floats
    deviations: Floats
    shares: Floats
    sound: NDArray[np.bool_]

    def probability_lower(self, values: NDArray[Any]) -> Floats:
        """Posterior of the lower component, made non-increasing in the value, [Q, M].

        A wide lower component would otherwise win again above the upper one's mean, and call the most similar
        candidates the surest negatives. A mixture of one row serves any number of rows.
        """
        within = np.clip(np.asarray(values, np.float64), self.means[:, :1], self.means[:, 1:])
        lower, upper = _log_densities(within, self.means, self.deviations, self.shares)
        result: Floats = 1.0 / (1.0 + np.exp(np.clip(upper - lower, -700, 700)))
        return result


def fit_gaussians(values: NDArray[Any]) -> Gaussians:
    """Fit two Gaussians to each row by expectation–maximisation.

    It starts from two means (Lloyd's algorithm) and stops for each row by itself, so no row depends on the others.

    Parameters
    ----------
    values
        [Q, M], each row sorted, NaN at its end; a row needs at least one value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> values = np.sort(np.concatenate([rng.normal(0.2, 0.05, 900), rng.normal(0.8, 0.05, 100)]))[None, :]
    >>> fit_gaussians(values).means.round(1).tolist()
    [[0.2, 0.8]]
    """
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0).astype(np.float64)
    count = np.maximum(total(known.astype(np.float64)), 1.0)
    upper = _upper_half(filled, known)
    parameters = _maximised(filled, np.stack([known & ~upper, known & upper]).astype(np.float64), count)
    last = np.full(len(values), -np.inf)
    active = np.arange(len(values))
    for _ in range(_MOST_STEPS):
        part = [each[active] for each in parameters]
        logs = np.stack(_log_densities(filled[active], *part))
        whole = np.logaddexp(logs[0], logs[1])
        likelihood = (total(np.where(known[active], whole, 0.0)) / count[active])[:, 0]
        moved = likelihood - last[active] > _CONVERGED
        last[active] = likelihood
        # The parameters that the last likelihood belongs to stay.
        active, logs, whole = active[moved], logs[:, moved], whole[moved]
        if not len(active):
            break
        shares = np.where(known[active], np.exp(logs - whole), 0.0)
        for each, new in zip(parameters, _maximised(filled[active], shares, count[active]), strict=True):
            each[active] = new
    order = np.argsort(parameters[0], axis=1, kind="stable")
    means, deviations, weights = (np.take_along_axis(each, order, axis=1) for each in parameters)
    return Gaussians(means, deviations, weights, _two_are_better(filled, known, count, last))


def _upper_half(filled: Floats, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True for the values nearer to the upper of two means, [Q, M]."""
    border = total(filled) / np.maximum(total(known.astype(np.float64)), 1.0)
    for _ in range(20):
        upper = known & (filled > border)
        number = total(upper.astype(np.float64))
        high = total(filled * upper) / np.maximum(number, 1.0)
        rest = total(known.astype(np.float64)) - number
        low = total(filled * (known & ~upper)) / np.maximum(rest, 1.0)
        border = np.where((number > 0) & (rest > 0), (low + high) / 2, border)
    return known & (filled > border)


def _maximised(filled: Floats, shares: Floats, count: Floats) -> list[Floats]:
    """Means, deviations and shares [Q, 2] that maximise the likelihood given who belongs where, [2, Q, M]."""
    columns: list[list[Floats]] = [[], [], []]
    for share in shares:
        mass = total(share)
        safe = np.maximum(mass, 1e-300)
        mean = total(share * filled) / safe
        variance = total(share * (filled - mean) ** 2) / safe + _LEAST_VARIANCE
        for column, value in zip(columns, (mean, np.sqrt(variance), mass / count), strict=True):
            column.append(value)
    return [np.concatenate(column, axis=1) for column in columns]


def _log_densities(values: Floats, means: Floats, deviations: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Logarithm of share · density of both components without the constant, each [Q, M]."""
    lower, upper = (
        np.log(np.maximum(shares[:, [k]], 1e-300))
        - np.log(deviations[:, [k]])
        - 0.5 * ((values - means[:, [k]]) / deviations[:, [k]]) ** 2
        for k in (0, 1)
    )
    return lower, upper


def _two_are_better(filled: Floats, known: NDArray[np.bool_], count: Floats, likelihood: Floats) -> NDArray[np.bool_]:
    """Whether BIC pays for the three further parameters, [Q]; constants common to both are left out."""
    mean = total(filled) / count
    variance = total(np.where(known, (filled - mean) ** 2, 0.0)) / count
    variance = variance[:, 0] + _LEAST_VARIANCE
    single = -0.5 * np.log(variance) - 0.5 * (variance - _LEAST_VARIANCE) / variance
    number = count[:, 0]
    better: NDArray[np.bool_] = 2 * number * (likelihood - single) > 3 * np.log(number)
    return better
