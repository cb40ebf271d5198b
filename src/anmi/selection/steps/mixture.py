"""Weights from a mixture of two components, or three (ProGCL; methods §3.4)."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field, model_validator

from anmi.candidates import Candidates
from anmi.errors import AnmiError
from anmi.ragged import Bools, Float64s
from anmi.selection.steps.registry import Context, Params, step

log = logging.getLogger(__name__)


_MOST_STEPS: Final = 300
_CONVERGED: Final = 1e-6
_REPORTED_SEED: Final = 42


def total(values: Float64s) -> Float64s:
    """Sum of each row, [Q, 1], from left to right: zeros at its end change no bit.

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

    means: Float64s
    deviations: Float64s
    shares: Float64s
    sound: Bools

    def probability_lower(self, values: NDArray[Any]) -> Float64s:
        """Posterior of the lowest component, made non-increasing in the value, [Q, M].

        Against each other component the odds fall between the two means and may rise again outside
        of them, since deviations differ; there they stay what they are at the nearer mean.
        """
        x = np.asarray(values, np.float64)
        shape = np.broadcast_shapes(x.shape, (len(self.means), 1))
        against = np.zeros(shape)
        lowest_mean = self.means[:, :1]
        for k in range(1, self.means.shape[1]):
            within = np.clip(x, lowest_mean, self.means[:, [k]])
            logs = _log_densities(within, self.means, self.deviations**2, self.shares)
            log_odds = logs[:, :, k] - logs[:, :, 0]
            against = against + np.exp(np.clip(log_odds, -700, 700))
        return 1.0 / (1.0 + against)


def fit_gaussians(values: NDArray[Any], count: int = 2) -> Gaussians:
    """Fit ``count`` Gaussians by scikit-learn's expectation–maximisation, to convergence.

    Parameters
    ----------
    values
        Sorted, [1, M] with M at least ``count``.
    count
        K, at least 2.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> parts = [rng.normal(centre, 0.03, 300) for centre in (0.2, 0.5, 0.8)]
    >>> fit_gaussians(np.sort(np.concatenate(parts))[None, :], 3).means.round(1).tolist()
    [[0.2, 0.5, 0.8]]
    """
    options = {"tol": _CONVERGED, "max_iter": _MOST_STEPS}
    several = _mixture_of(values.T, count, **options)
    single = _mixture_of(values.T, 1, **options)
    is_sound = several.bic(values.T) < single.bic(values.T)
    order = np.argsort(several.means_[:, 0])
    variances = several.covariances_[order, :, 0]
    return Gaussians(
        means=several.means_[order].T,
        deviations=np.sqrt(variances).T,
        shares=several.weights_[None, order],
        sound=np.array([is_sound]),
    )


def _mixture_of(values: Float64s, count: int, **options: Any) -> Any:
    """Return scikit-learn's mixture of so many Gaussians, fitted to values [M, 1]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        # Of few values, or of values that are alike: what comes of it is judged afterwards.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GaussianMixture(count, random_state=_REPORTED_SEED, **options).fit(values)


def _log_densities(
    values: Float64s,
    means: Float64s,
    variances: Float64s,
    shares: Float64s,
) -> Float64s:
    """Logarithm of share · density of every component without the constant, [Q, M, K]."""
    logs = np.log(np.maximum(shares, 1e-300))
    logs = logs - 0.5 * np.log(variances)
    distances = values[:, :, None] - means[:, None, :]
    exponents = 0.5 * distances**2 / variances[:, None, :]
    return logs[:, None, :] - exponents


# Of ProGCL's released code (pGRACE/model.py and train.py): steps of expectation–maximisation,
# starts, least density.
_STEPS: Final = 10
_ALPHAS: Final = (1.0, 2.0)
_BETAS: Final = (2.0, 1.0)
_UPPER_SHARE: Final = 0.05
_LEAST: Final = 1e-12


@dataclass(frozen=True)
class Betas:
    """A mixture of two Beta distributions, that of the lower mean first.

    Attributes
    ----------
    alphas, betas, shares
        [2, 1].
    sound
        False where one Beta distribution is better by BIC, [1].
    """

    alphas: Float64s
    betas: Float64s
    shares: Float64s
    sound: Bools

    def probability_lower(self, values: NDArray[Any]) -> Float64s:
        """Posterior of the lower component, made non-increasing in the value, [Q, M].

        The log-odds of the upper component, (α₁ − α₀)·log x + (β₁ − β₀)·log(1 − x), may turn at one
        point. On the far side of it the posterior stays what it is there, where the released code
        lets it rise again.
        """
        rise = float(self.alphas[1, 0] - self.alphas[0, 0])
        fall = float(self.betas[1, 0] - self.betas[0, 0])
        highest = 1 - _LEAST
        lowest = _LEAST
        if rise > 0 and fall > 0:
            highest = min(rise / (rise + fall), highest)
        elif rise < 0 and fall < 0:
            lowest = max(rise / (rise + fall), lowest)
        x = np.clip(np.asarray(values, np.float64), lowest, highest)
        lower, upper = _beta_log_densities(
            x.reshape(1, -1),
            self.alphas,
            self.betas,
            self.shares,
        )
        odds_against = np.exp(np.clip(upper - lower, -700, 700))
        probability: Float64s = 1.0 / (1.0 + odds_against)
        return probability.reshape(x.shape)


def fit_betas(values: NDArray[Any], steps: int = _STEPS) -> Betas:
    """Fit two Beta distributions by the weighted method of moments (ProGCL; methods §3.4).

    Ten steps of expectation–maximisation from Beta(1, 2) with 95 % and Beta(2, 1) with 5 %. As in
    the released code no density counts as less than 1e-12, and a β of the upper component that
    falls below 1 is set to 1.01.

    Parameters
    ----------
    values
        In [0, 1], sorted, [1, M] with M at least 1.
    steps
        Of expectation–maximisation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> values = np.sort(np.concatenate([rng.beta(20, 20, 900), rng.beta(90, 10, 100)]))[None, :]
    >>> mixture = fit_betas(values, steps=100)
    >>> (mixture.alphas / (mixture.alphas + mixture.betas)).round(1).tolist()
    [[0.5], [0.9]]
    """
    x = np.clip(values.astype(np.float64), _LEAST, 1 - _LEAST)
    alphas = np.array(_ALPHAS)[:, None]
    betas = np.array(_BETAS)[:, None]
    shares = np.array([[1 - _UPPER_SHARE], [_UPPER_SHARE]])
    for _ in range(steps):
        logs = _beta_log_densities(x, alphas, betas, shares)
        logs = np.maximum(logs, np.log(_LEAST))
        belongs = np.exp(logs - np.logaddexp(*logs))
        alphas, betas = _moments(x, belongs)
        betas[1] = np.where(betas[1] < 1, 1.01, betas[1])
        masses = total(belongs)
        shares = masses / masses.sum()
    # By BIC, which has to pay for three further parameters.
    double = np.logaddexp(*_beta_log_densities(x, alphas, betas, shares))
    alpha, beta = _moments(x, np.ones_like(x))
    single = _beta_log_densities(x, alpha, beta, np.ones((1, 1)))
    gain = total(double[None]) - total(single)
    sound = 2 * gain > 3 * np.log(x.shape[1])
    means = alphas / (alphas + betas)
    order = np.argsort(means[:, 0], kind="stable")
    return Betas(alphas[order], betas[order], shares[order], sound[0])


def _moments(x: Float64s, weights: Float64s) -> tuple[Float64s, Float64s]:
    """Return α and β of the distribution with the weighted mean and variance, each [K, 1]."""
    mass = np.maximum(total(weights), 1e-300)
    mean = total(weights * x) / mass
    mean = np.clip(mean, _LEAST, 1 - _LEAST)
    variance = total(weights * (x - mean) ** 2) / mass
    variance = np.maximum(variance, _LEAST)
    concentration = mean * (1 - mean) / variance - 1
    concentration = np.maximum(concentration, 1e-6)
    return mean * concentration, (1 - mean) * concentration


def _beta_log_densities(
    x: Float64s,
    alphas: Float64s,
    betas: Float64s,
    shares: Float64s,
) -> Float64s:
    """Logarithm of share · density of components whose parameters are [K, 1], [K, M]."""
    logs = np.log(np.maximum(shares, 1e-300))
    scale = scipy.special.betaln(alphas, betas)
    rising = (alphas - 1) * np.log(x)
    falling = (betas - 1) * np.log1p(-x)
    return logs + rising + falling - scale


_MOST_VALUES: Final = 50_000
Fitted = Gaussians | Betas


class Mixture(Params):
    """What the mixture is made of, and what it is fitted to."""

    column: str = Field(
        "dense", description="Similarity; times P(true negative) it becomes the `hardness`."
    )
    family: Literal["gaussian", "beta"] = Field(
        "gaussian", description="`beta`: ProGCL's own, fitted to (s + 1)/2."
    )
    components: Literal[2, 3] = Field(
        2, description="Of Gaussians; a third lies in between (ANMI 2.1 report)."
    )
    per: Literal["pooled", "query", "dev"] = Field(
        "pooled",
        description=(
            "One fit for all queries, or one per row, however few its values (ANMI 2.1 report). "
            "`dev`: one, fitted to what retrieval finds for dev queries."
        ),
    )
    fewest: int = Field(
        200, ge=10, description="Below this many values a pooled fit is noise, and weights stay 1."
    )

    @model_validator(mode="after")
    def _of_gaussians(self) -> Mixture:
        if self.family == "gaussian":
            return self
        for name in ("components", "per"):
            usual = type(self).model_fields[name].default
            if getattr(self, name) not in (usual, "dev"):
                raise ValueError(
                    f"{name} is {usual} with family {self.family}; take gaussian, or leave out"
                    f" {name}"
                )
        return self


def fit(
    blocks: Iterable[Candidates],
    params: Mixture,
    context: Context,
) -> Fitted | None:
    """Fit one mixture to the undecided candidates of all queries.

    It is None, with a warning, where one component is better.

    With ``per: query`` each row fits its own when its weights are set. With ``per: dev`` the
    queries are dev queries.
    """
    if params.per == "query":
        return None
    parts = [np.zeros(0)]
    for block in blocks:
        measured = _measured(block, params)[block.undecided]
        parts.append(measured[np.isfinite(measured)])
    values = np.sort(np.concatenate(parts))
    if len(values) < params.fewest:
        log.warning("mixture: %d values are too few to fit a mixture; weights stay 1", len(values))
        return None
    # Every k-th of the sorted values has their distribution, whatever the order of the candidates.
    spacing = math.ceil(len(values) / _MOST_VALUES)
    some = values[::spacing][None, :]
    is_gaussian = params.family == "gaussian"
    fitted = fit_gaussians(some, params.components) if is_gaussian else fit_betas(some)
    if not fitted.sound[0]:
        log.warning("mixture: one component fits as well as several (by BIC); weights stay 1")
        return None
    return fitted


def _fitted_rows(block: Candidates, params: Mixture) -> Float64s:
    """P(true negative) by a mixture for each row, [Q, M]; σ(5(½ − s)) of too few values for one.

    As the ANMI 2.1 report has it, by scikit-learn's mixture with its defaults: a posterior may rise
    again, and no row is refused for having one hump. The values come in the order of BM25, the
    report's; where that is unknown, in the order of the documents.
    """
    values = _measured(block, params)
    usable = block.undecided & np.isfinite(values)
    probability: Float64s = scipy.special.expit(5 * (0.5 - values))
    no_ranks = np.zeros(values.shape, np.float32)
    rank = block.columns.get("bm25_rank", no_ranks)
    rank = np.nan_to_num(rank, nan=np.inf)
    order = np.lexsort((block.documents, rank))
    for row in np.flatnonzero(usable.sum(axis=1) >= params.components):
        row_order = order[row]
        places = row_order[usable[row, row_order]]
        of_row = values[row, places][:, None]
        mixture = _mixture_of(of_row, params.components)
        posteriors = mixture.predict_proba(of_row)
        probability[row, places] = posteriors[:, np.argmin(mixture.means_)]
    return probability


def _measured(block: Candidates, params: Mixture) -> Float64s:
    """Return what is fitted, [Q, M], the lower the surer a negative; NaN where unknown."""
    similarity = block.columns[params.column].astype(np.float64)
    if params.family == "gaussian":
        return similarity
    # A cosine computed in single or half precision may lie a little beyond 1.
    if (np.abs(similarity) > 1.01).any():
        raise AnmiError(
            f'mixture: a Beta distribution needs cosines, and "{params.column}" has values outside'
            " [−1, 1]; take the family gaussian for it"
        )
    return np.clip((similarity + 1) / 2, 0.0, 1.0)


@step("mixture", Mixture, fit=fit, makes=("p_negative", "hardness"))
def mixture(block: Candidates, params: Mixture, context: Context) -> Candidates:
    """Multiply the weight by P(true negative); ``hardness`` is similarity · P(true negative).

    Where a Beta mixture is fitted, the similarity in the product is (s + 1)/2, as in ProGCL's code,
    and so is never negative. A candidate of unknown value has no weight where there is a fit.
    """
    fitted: Fitted | None = context.fitted
    values = _measured(block, params)
    if params.per == "query":
        negative = _fitted_rows(block, params)
    elif fitted is None:
        negative = np.ones_like(values)
    else:
        negative = fitted.probability_lower(values)
    hardness = values * negative
    block = block.with_columns({"p_negative": negative, "hardness": hardness})
    weight = block.weight * np.nan_to_num(negative)
    return replace(block, weight=weight.astype(np.float32))
