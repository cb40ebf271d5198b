"""Any number of Gaussians on one axis, fitted to every row of an array at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MOST_STEPS: Final = 300
_CONVERGED: Final = 1e-6
_LLOYD: Final = 20
# Rows fitted together, few enough for a processor's cache.
_ROWS: Final = 512
# Keeps a component from collapsing onto one value; scikit-learn adds the same.
_LEAST_VARIANCE: Final = 1e-6


def total(values: Floats) -> Floats:
    """Sum of each row, [Q, 1], added from left to right, so that zeros at the end of a row change no bit of it.

    Examples
    --------
    >>> total(np.array([[1.0, 2.0, 0.0]])).tolist()
    [[3.0]]
    """
    return np.cumsum(values, axis=1)[:, -1:]


@dataclass(frozen=True)
class Gaussians:
    """A mixture of K Gaussians per row, in order of their means.

    Attributes
    ----------
    means, deviations, shares
        [Q, K].
    sound
        False where one Gaussian is better by BIC, [Q].
    """

    means: Floats
    deviations: Floats
    shares: Floats
    sound: NDArray[np.bool_]

    def probability_lower(self, values: NDArray[Any]) -> Floats:
        """Posterior of the lowest component, made non-increasing in the value, [Q, M].

        Against each other component the odds fall between the two means and may rise again outside of them, since
        deviations differ; there they stay what they are at the nearer mean.
        """
        x = np.asarray(values, np.float64)
        against = np.zeros(np.broadcast_shapes(x.shape, (len(self.means), 1)))
        for k in range(1, self.means.shape[1]):
            within = np.clip(x, self.means[:, :1], self.means[:, [k]])
            lower, upper = (self._log_density(within, place) for place in (0, k))
            against = against + np.exp(np.clip(upper - lower, -700, 700))
        return 1.0 / (1.0 + against)

    def _log_density(self, values: Floats, k: int) -> Floats:
        """Logarithm of share · density of a component, without the constant."""
        return _log_densities(values, self.means[:, [k]], self.deviations[:, [k]] ** 2, self.shares[:, [k]])[:, :, 0]


def fit_gaussians(values: NDArray[Any], count: int = 2) -> Gaussians:
    """Fit ``count`` Gaussians to each row by expectation–maximisation.

    It starts from means spread evenly from the least to the largest value and improved by Lloyd's algorithm, and stops
    for each row by itself, so no row depends on the others.

    Parameters
    ----------
    values
        [Q, M], each row sorted, NaN at its end; a row needs at least one value.
    count
        K, at least 2.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> parts = [rng.normal(centre, 0.03, 300) for centre in (0.2, 0.5, 0.8)]
    >>> fit_gaussians(np.sort(np.concatenate(parts))[None, :], 3).means.round(1).tolist()
    [[0.2, 0.5, 0.8]]
    """
    parts = [_fit(values[start : start + _ROWS], count) for start in range(0, max(len(values), 1), _ROWS)]
    return Gaussians(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _fit(values: NDArray[Any], count: int) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Means, deviations and shares [Q, K], and whether K are better than one, [Q]; fitted on standardised rows."""
    known = np.isfinite(values).astype(np.float64)
    filled = np.where(known > 0, values, 0.0).astype(np.float64)
    number = np.maximum(total(known), 1.0)
    centre = total(filled) / number
    spread = np.sqrt(total(known * (filled - centre) ** 2) / number)
    spread = np.where(spread > 0, spread, 1.0)
    z, least = known * (filled - centre) / spread, _LEAST_VARIANCE / spread**2
    belongs = _lloyd(z, known, count)
    means, variances, shares = _maximised(z, belongs, number, least)
    last, moving = np.full((len(z), 1), -np.inf), np.ones((len(z), 1), np.bool_)
    for _ in range(_MOST_STEPS):
        logs = _log_densities(z, means, variances, shares)
        highest = logs.max(axis=2, keepdims=True)
        weights = np.exp(logs - highest)
        sums = weights.sum(axis=2, keepdims=True)
        likelihood = total(known * (np.log(sums) + highest)[:, :, 0]) / number
        moving &= likelihood - last > _CONVERGED
        last = np.where(moving, likelihood, last)
        if not moving.any():
            break
        found = _maximised(z, known[:, :, None] * weights / sums, number, least)
        # A row that has converged keeps its parameters, however long the others take.
        means, variances, shares = (
            np.where(moving, new, old) for new, old in zip(found, (means, variances, shares), strict=True)
        )
    # Of values that are all alike the variance is 0, not 1.
    variance = total(z * z) / number + least
    single = -0.5 * np.log(variance) - 0.5 * (variance - least) / variance
    sound = (2 * number * (last - single) > 3 * (count - 1) * np.log(number))[:, 0]
    order = np.argsort(means, axis=1, kind="stable")
    means, variances, shares = (np.take_along_axis(each, order, axis=1) for each in (means, variances, shares))
    return centre + spread * means, spread * np.sqrt(variances), shares, sound


def _lloyd(z: Floats, known: Floats, count: int) -> Floats:
    """1 where a value belongs to the nearest of K means, [Q, M, K]."""
    low = np.where(known > 0, z, np.inf).min(axis=1, keepdims=True)
    high = np.where(known > 0, z, -np.inf).max(axis=1, keepdims=True)
    means = low + (high - low) * (np.arange(count) + 0.5) / count
    for _ in range(_LLOYD):
        belongs = known[:, :, None] * (
            np.argmin(np.abs(z[:, :, None] - means[:, None, :]), axis=2)[:, :, None] == np.arange(count)
        )
        mass = np.cumsum(belongs, axis=1)[:, -1]
        sums = np.cumsum(belongs * z[:, :, None], axis=1)[:, -1]
        means = np.where(mass > 0, sums / np.maximum(mass, 1.0), means)
    return belongs


def _maximised(z: Floats, belongs: Floats, number: Floats, least: Floats) -> tuple[Floats, Floats, Floats]:
    """Means, variances and shares by who belongs where, each [Q, K].

    Sums go from left to right, so that padding at the end of a row changes no bit of them.
    """
    mass = np.cumsum(belongs, axis=1)[:, -1]
    safe = np.maximum(mass, 1e-12)
    means = np.cumsum(belongs * z[:, :, None], axis=1)[:, -1] / safe
    squares = np.cumsum(belongs * (z * z)[:, :, None], axis=1)[:, -1] / safe
    return means, np.maximum(squares - means**2, 0.0) + least, mass / number


def _log_densities(values: Floats, means: Floats, variances: Floats, shares: Floats) -> Floats:
    """Logarithm of share · density of every component without the constant, [Q, M, K]."""
    far = values[:, :, None] - means[:, None, :]
    result: Floats = (
        np.log(np.maximum(shares, 1e-300))[:, None, :]
        - 0.5 * np.log(variances)[:, None, :]
        - 0.5 * far**2 / variances[:, None, :]
    )
    return result
