"""Two Gaussians on one axis, fitted to every row of an array at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MOST_STEPS: Final = 300
_CONVERGED: Final = 1e-6
# Rows fitted together, few enough for a processor's cache; those that have converged leave when half of them have.
_ROWS: Final = 512
_STILL_WORTH: Final = 0.5
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
        return 1.0 / (1.0 + np.exp(np.clip(upper - lower, -700, 700)))


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
    parts = [_fit(values[start : start + _ROWS]) for start in range(0, max(len(values), 1), _ROWS)]
    means, deviations, shares, sound = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(means, axis=1, kind="stable")
    means, deviations, shares = (np.take_along_axis(each, order, axis=1) for each in (means, deviations, shares))
    return Gaussians(means, deviations, shares, sound)


def _fit(values: NDArray[Any]) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Means, deviations and shares [Q, 2] in no order, and whether two are better, [Q]; on standardised rows."""
    known = np.isfinite(values).astype(np.float64)
    filled = np.where(known > 0, values, 0.0).astype(np.float64)
    count = np.maximum(total(known), 1.0)
    centre = total(filled) / count
    spread = np.sqrt(total(known * (filled - centre) ** 2) / count)
    spread = np.where(spread > 0, spread, 1.0)
    z = known * (filled - centre) / spread
    least = _LEAST_VARIANCE / spread**2
    sample = _Sample(z, z * z, known, count, total(z), total(z * z), least)
    start = known * _upper_half(z, known)
    found, likelihood = _climb(sample, _maximised(sample, start))
    share, low_mean, low_variance, high_mean, high_variance = found.T[:, :, None]
    variance = sample.squares / count + least
    single = -0.5 * np.log(variance) - 0.5 * (variance - least) / variance
    sound = 2 * count * (likelihood - single) > 3 * np.log(count)
    means = centre + spread * np.hstack([low_mean, high_mean])
    deviations = spread * np.sqrt(np.hstack([low_variance, high_variance]))
    return means, deviations, np.hstack([1 - share, share]), sound[:, 0]


class _Sample(NamedTuple):
    """Standardised rows and their squares, 0 in padding, [Q, M]; what is known; their sums [Q, 1]."""

    z: Floats
    z2: Floats
    known: Floats
    number: Floats
    sums: Floats
    squares: Floats
    least: Floats

    def take(self, rows: NDArray[Any]) -> _Sample:
        return _Sample(*(each[rows] for each in self))


def _climb(sample: _Sample, start: Floats) -> tuple[Floats, Floats]:
    """Raise the likelihood until it stands; return the parameters [Q, 5] and the mean log-likelihood [Q, 1].

    A row that has converged keeps its parameters, however long the others take, so none depends on the others.
    """
    parameters, last = start.copy(), np.full((len(start), 1), -np.inf)
    rows, moving = np.arange(len(start)), np.ones(len(start), np.bool_)
    for _ in range(_MOST_STEPS):
        likelihood, upper = _expected(sample, parameters[rows])
        moving &= (likelihood - last[rows])[:, 0] > _CONVERGED
        last[rows[moving]] = likelihood[moving]
        if not moving.any():
            break
        parameters[rows[moving]] = _maximised(sample, upper)[moving]
        if moving.mean() < _STILL_WORTH:
            rows, sample, moving = rows[moving], sample.take(moving), moving[moving]
    return parameters, last


def _expected(sample: _Sample, parameters: Floats) -> tuple[Floats, Floats]:
    """Mean log-likelihood [Q, 1] without its constant, and how far each value belongs to the upper component."""
    share, low_mean, low_variance, high_mean, high_variance = parameters.T[:, :, None]

    def quadratic(part: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
        constant = np.log(np.maximum(part, 1e-300)) - 0.5 * np.log(variance) - 0.5 * mean**2 / variance
        return -0.5 / variance, mean / variance, constant

    a, b, c = quadratic(1 - share, low_mean, low_variance)
    a1, b1, c1 = quadratic(share, high_mean, high_variance)
    odds = np.exp(np.minimum((a1 - a) * sample.z2 + (b1 - b) * sample.z + (c1 - c), 700.0))
    likelihood = c + (b * sample.sums + a * sample.squares + total(sample.known * np.log1p(odds))) / sample.number
    return likelihood, sample.known * (odds / (1 + odds))


def _maximised(sample: _Sample, upper: Floats) -> Floats:
    """Share, mean and variance of the lower, mean and variance of the upper component, [Q, 5], by who belongs where."""
    mass, sums, squares = total(upper), total(upper * sample.z), total(upper * sample.z2)
    columns = [mass / sample.number]
    for n, s, q in (
        (sample.number - mass, sample.sums - sums, sample.squares - squares),
        (mass, sums, squares),
    ):
        safe = np.maximum(n, 1e-12)
        columns += [s / safe, np.maximum(q / safe - (s / safe) ** 2, 0.0) + sample.least]
    return np.hstack(columns)


def _upper_half(z: Floats, known: Floats) -> NDArray[np.bool_]:
    """True for the values nearer to the upper of two means, [Q, M]; padding is 0 as the mean is."""
    border = np.zeros((len(z), 1))
    count, whole = total(known), total(z)
    for _ in range(20):
        upper = known * (z > border)
        number, high = total(upper), total(z * upper)
        rest = count - number
        middle = (high / np.maximum(number, 1.0) + (whole - high) / np.maximum(rest, 1.0)) / 2
        border = np.where((number > 0) & (rest > 0), middle, border)
    return z > border


def _log_densities(values: Floats, means: Floats, deviations: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Logarithm of share · density of both components without the constant, each [Q, M]."""
    lower, upper = (
        np.log(np.maximum(shares[:, [k]], 1e-300))
        - np.log(deviations[:, [k]])
        - 0.5 * ((values - means[:, [k]]) / deviations[:, [k]]) ** 2
        for k in (0, 1)
    )
    return lower, upper
