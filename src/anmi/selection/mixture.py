"""Weights from a two-component mixture over similarities (ProGCL; methods §3.4)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anmi.candidates import Candidates
from anmi.selection.recipe import Context, Params, step

log = logging.getLogger(__name__)
_MOST_VALUES: Final = 200_000


class Mixture(Params):
    """Which column the mixture is fitted to."""

    column: str = Field("dense", description="Similarity whose lower component holds the true negatives.")
    fewest: int = Field(200, ge=10, description="Below this many values a fit is noise, and all weights stay 1.")


@dataclass(frozen=True)
class FittedMixture:
    """Two Gaussians on one axis; the one of the lower mean stands for true negatives."""

    means: tuple[float, float]
    deviations: tuple[float, float]
    shares: tuple[float, float]

    def probability_negative(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Posterior of the lower component, made non-increasing in the value.

        A wide lower component would otherwise win again above the upper one's mean, and call the most similar
        candidates the surest negatives.
        """
        mean, deviation, share = (np.asarray(x)[:, None] for x in (self.means, self.deviations, self.shares))
        flat = np.clip(np.asarray(values, np.float64).ravel(), *self.means)[None, :]
        with np.errstate(divide="ignore"):
            density = np.log(share) - np.log(deviation) - 0.5 * ((flat - mean) / deviation) ** 2
        posterior = 1.0 / (1.0 + np.exp(np.clip(density[1] - density[0], -700, 700)))
        return posterior.reshape(np.shape(values))


def fit(blocks: Iterable[Candidates], params: Mixture, context: Context) -> FittedMixture | None:
    """Fit the mixture to the undecided candidates of all queries; None, with a warning, when one Gaussian is better."""
    parts = [block.columns[params.column][block.undecided] for block in blocks]
    values = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    finite = values[np.isfinite(values)].astype(np.float64)
    if len(finite) < params.fewest:
        log.warning("mixture: %d values are too few to fit two components; weights stay 1", len(finite))
        return None
    return fit_gaussians(finite[:: max(1, len(finite) // _MOST_VALUES)])


def fit_gaussians(values: NDArray[np.float64]) -> FittedMixture | None:
    """Fit two Gaussians by expectation–maximisation; None when one is better by BIC.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fitted = fit_gaussians(np.concatenate([rng.normal(0.2, 0.05, 900), rng.normal(0.8, 0.05, 100)]))
    >>> [round(mean, 1) for mean in fitted.means]
    [0.2, 0.8]
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    column = values[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        single = GaussianMixture(1, random_state=0).fit(column)
        double = GaussianMixture(2, random_state=0, max_iter=200).fit(column)
    if single.bic(column) <= double.bic(column):
        log.warning("mixture: one Gaussian fits as well as two (by BIC); weights stay 1")
        return None
    order = np.argsort(double.means_[:, 0])
    means = double.means_[order, 0]
    deviations = np.sqrt(double.covariances_[order, 0, 0])
    shares = double.weights_[order]
    return FittedMixture(*((float(x[0]), float(x[1])) for x in (means, deviations, shares)))


@step("mixture", Mixture, requires=lambda p: {p.column}, fit=fit)
def mixture(block: Candidates, params: Mixture, context: Context) -> Candidates:
    """Multiply the weight by P(true negative); the column ``hardness`` becomes similarity · P(true negative)."""
    similarity = block.columns[params.column]
    fitted: FittedMixture | None = context.fitted
    negative = np.ones_like(similarity) if fitted is None else fitted.probability_negative(similarity)
    block = block.with_columns({"p_negative": negative, "hardness": similarity * negative})
    return replace(block, weight=(block.weight * np.nan_to_num(negative)).astype(np.float32))
