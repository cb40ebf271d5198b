"""Learning from positives and from a pool in which some documents are relevant too, though nobody labelled them.

Labelled documents are drawn from the relevant ones, so their evidence has the density f₁; that of the pool has the
density π f₁ + (1−π) f₀, where π, the share of relevant documents in it, is unknown. If log f₁/f₀ is linear in the
inputs, the chance that an example is labelled rises with them but levels off at that of a document that is surely
relevant, and where it levels off tells π (Ward et al. 2009, "Presence-only data and the EM algorithm"). Where little
tells it, a normal prior on the log-odds of π decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

# Two thirds of all shares are expected within a factor of about seven of the prior: between the collections that the
# shipped coefficients were fitted on they differ by a factor of six.
_SPREAD: Final = 2.0
# A query's hundred nearest candidates tell as much as about ten independent ones: they are alike.
_INDEPENDENT: Final = 10.0
# Log of f₁/f₀ beyond which a document is surely relevant, far below what a float holds.
_HIGHEST: Final = 300.0


@dataclass(frozen=True)
class Contaminated:
    """What was fitted.

    Attributes
    ----------
    coefficients
        Of log f₁/f₀, on the inputs; K numbers ≥ 0.
    intercept
        With it they give the log-odds that an unlabelled document is relevant.
    share
        Of relevant documents in the pool, π, between 0 and 1.
    """

    coefficients: tuple[float, ...]
    intercept: float
    share: float


def fit_contaminated(
    inputs: NDArray[Any],
    labelled: NDArray[np.bool_],
    weights: NDArray[Any],
    centre: NDArray[Any],
    ridge: float,
    expected: float,
    queries: int,
) -> Contaminated:
    """Fit coefficients and share together by penalised maximum likelihood.

    Parameters
    ----------
    inputs
        Of n examples, finite and standardised, [n, K].
    labelled
        True for labelled documents, False for those of the pool, [n].
    weights
        Of the examples, [n]. Both kinds are made to weigh the same.
    centre
        Coefficients that the ridge pulls to, [K].
    ridge
        Weight of the squared distance from them beside the mean log-likelihood.
    expected
        Share of relevant documents in the pool that is expected before looking, between 0 and 1.
    queries
        Independent queries behind the examples, at least 1; the more, the less the expected share matters.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> relevant = draw.random(20_000) < 0.2
    >>> pool, labelled = draw.normal(size=20_000) + 2 * relevant, draw.normal(size=5_000) + 2
    >>> values, kind = np.append(labelled, pool)[:, None], np.arange(25_000) < 5_000
    >>> found = fit_contaminated(values, kind, np.ones(25_000), np.zeros(1), 0.0, 0.02, 2_000)
    >>> round(found.share, 1), round(found.coefficients[0])
    (0.2, 2)
    """
    share = np.where(labelled, weights, 0).sum()
    weight = np.where(labelled, 0.5 * weights / share, 0.5 * weights / (weights.sum() - share))
    width, values, start = inputs.shape[1], np.asarray(inputs, np.float64), float(scipy.special.logit(expected))
    pull = 1 / (_SPREAD**2 * _INDEPENDENT * queries)

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slopes, odds = point[:width], float(point[width + 1])
        of_pool, other = (float(share) for share in scipy.special.expit([odds, -odds]))
        ratio = values @ slopes + point[width]
        # f₁/f₀, and from it the densities of the pool and of both kinds together, over f₀: one exponential and two
        # logarithms, of which nearly all of the time is.
        relevant = np.exp(np.minimum(ratio, _HIGHEST))
        pool = of_pool * relevant + other
        both = relevant + pool
        losses = np.log(both) - np.where(labelled, ratio, np.log(pool))
        error = weight * (relevant / both - labelled)
        relevant *= of_pool / pool
        off = slopes - centre
        loss = (weight * losses).sum() + ridge * (off**2).sum()
        along = error * (1 - relevant)
        of_share = -(error * (relevant - of_pool)).sum() + pull * (odds - start)
        gradient = np.concatenate([values.T @ along + 2 * ridge * off, [along.sum(), of_share]])
        return float(loss + 0.5 * pull * (odds - start) ** 2), gradient

    first = np.concatenate([np.maximum(centre, 0.1), [0.0, start]])
    bounds = [(0.0, None)] * width + [(None, None)] * 2
    found = scipy.optimize.minimize(
        objective, first, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 500}
    ).x
    return Contaminated(
        tuple(found[:width].tolist()),
        float(found[width] + found[width + 1]),
        float(scipy.special.expit(found[width + 1])),
    )


def labelled_chance(relevant: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return the chance that an example is a labelled one, both kinds weighing the same.

    Parameters
    ----------
    relevant
        Chance that it is relevant as an unlabelled one, of any shape.
    share
        Of relevant documents in the pool.

    Examples
    --------
    >>> labelled_chance(np.array([0.2, 1.0]), 0.2).round(2).tolist()
    [0.5, 0.83]
    """
    # f₁ / (f₁ + f) with f₁ / f = relevant / share.
    return relevant / (relevant + share)
