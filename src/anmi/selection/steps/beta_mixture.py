"""Two Beta distributions on (0, 1), fitted to every row of an array at once, as ProGCL does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from anmi.selection.steps.gaussian_mixture import Floats, total

# Of ProGCL's released code (pGRACE/model.py and train.py): steps of expectation–maximisation, starts, least density.
_STEPS: Final = 10
_ALPHAS: Final = (1.0, 2.0)
_BETAS: Final = (2.0, 1.0)
_UPPER_SHARE: Final = 0.05
_LEAST: Final = 1e-12


@dataclass(frozen=True)
class Betas:
    """A mixture per row, the component of the lower mean first.

    Attributes
    ----------
    alphas, betas, shares
        [Q, 2].
    sound
        False where one Beta distribution is better by BIC, [Q].
    """

    alphas: Floats
    betas: Floats
    shares: Floats
    sound: NDArray[np.bool_]

    def probability_lower(self, values: NDArray[Any]) -> Floats:
        """Posterior of the lower component, made non-increasing in the value, [Q, M].

        The log-odds of the upper component, (α₁ − α₀)·log x + (β₁ − β₀)·log(1 − x), may turn at one point. On the far
        side of it the posterior stays what it is there, where the released code lets it rise again.
        """
        x = np.clip(np.asarray(values, np.float64), _LEAST, 1 - _LEAST)
        rise = self.alphas[:, 1:] - self.alphas[:, :1]
        fall = self.betas[:, 1:] - self.betas[:, :1]
        with np.errstate(divide="ignore", invalid="ignore"):
            turn = rise / (rise + fall)
        highest = np.where((rise > 0) & (fall > 0), turn, 1.0)
        lowest = np.where((rise < 0) & (fall < 0), turn, 0.0)
        x = np.clip(x, np.maximum(lowest, _LEAST), np.minimum(highest, 1 - _LEAST))
        lower, upper = _log_densities(x, self.alphas, self.betas, self.shares)
        return 1.0 / (1.0 + np.exp(np.clip(upper - lower, -700, 700)))


def fit_betas(values: NDArray[Any], steps: int = _STEPS) -> Betas:
    """Fit two Beta distributions to each row by the weighted method of moments (ProGCL; methods §3.4).

    Ten steps of expectation–maximisation from Beta(1, 2) with 95 % and Beta(2, 1) with 5 %. As in the released code
    no density counts as less than 1e-12, and a β of the upper component that falls below 1 is set to 1.01.

    Parameters
    ----------
    values
        In [0, 1], [Q, M], each row sorted, NaN at its end; a row needs at least one value.
    steps
        Of expectation–maximisation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> values = np.sort(np.concatenate([rng.beta(20, 20, 900), rng.beta(90, 10, 100)]))[None, :]
    >>> mixture = fit_betas(values, steps=100)
    >>> (mixture.alphas / (mixture.alphas + mixture.betas)).round(1).tolist()
    [[0.5, 0.9]]
    """
    known = np.isfinite(values)
    x = np.clip(np.where(known, values, 0.5).astype(np.float64), _LEAST, 1 - _LEAST)
    rows = np.ones((len(x), 1))
    alphas, betas = rows * _ALPHAS, rows * _BETAS
    shares = rows * (1 - _UPPER_SHARE, _UPPER_SHARE)
    for _ in range(steps):
        logs = np.maximum(_log_densities(x, alphas, betas, shares), np.log(_LEAST))
        belongs = np.where(known, np.exp(logs - np.logaddexp(logs[0], logs[1])), 0.0)
        found = [_moments(x, each) for each in belongs]
        alphas, betas = (np.concatenate([each[k] for each in found], axis=1) for k in (0, 1))
        betas[:, 1] = np.where(betas[:, 1] < 1, 1.01, betas[:, 1])
        masses = np.concatenate([total(each) for each in belongs], axis=1)
        shares = masses / masses.sum(axis=1, keepdims=True)
    order = np.argsort(alphas / (alphas + betas), axis=1, kind="stable")
    sound = _two_are_better(x, known, alphas, betas, shares)
    alphas, betas, shares = (np.take_along_axis(each, order, axis=1) for each in (alphas, betas, shares))
    return Betas(alphas, betas, shares, sound)


def _moments(x: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return α and β of the Beta distribution that has the weighted mean and variance of each row, each [Q, 1]."""
    mass = np.maximum(total(weights), 1e-300)
    mean = np.clip(total(weights * x) / mass, _LEAST, 1 - _LEAST)
    variance = np.maximum(total(weights * (x - mean) ** 2) / mass, _LEAST)
    both = np.maximum(mean * (1 - mean) / variance - 1, 1e-6)
    return mean * both, (1 - mean) * both


def _log_densities(x: Floats, alphas: Floats, betas: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Logarithm of share · density of both components, each [Q, M]."""
    log_x, log_rest = np.log(x), np.log1p(-x)
    lower, upper = (
        np.log(np.maximum(shares[:, [k]], 1e-300))
        + (alphas[:, [k]] - 1) * log_x
        + (betas[:, [k]] - 1) * log_rest
        - scipy.special.betaln(alphas[:, [k]], betas[:, [k]])
        for k in (0, 1)
    )
    return lower, upper


def _two_are_better(
    x: Floats, known: NDArray[np.bool_], alphas: Floats, betas: Floats, shares: Floats
) -> NDArray[np.bool_]:
    """Whether BIC pays for the three further parameters, [Q]."""
    number = total(known.astype(np.float64))
    double = total(np.where(known, np.logaddexp(*_log_densities(x, alphas, betas, shares)), 0.0))
    alpha, beta = _moments(x, known.astype(np.float64))
    density = (alpha - 1) * np.log(x) + (beta - 1) * np.log1p(-x) - scipy.special.betaln(alpha, beta)
    single = total(np.where(known, density, 0.0))
    better: NDArray[np.bool_] = 2 * (double - single) > 3 * np.log(np.maximum(number, 1.0))
    return better[:, 0]
