"""Weights from a mixture of two components, or three (ProGCL; methods §3.4)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field, model_validator

from anmi.candidates import OPEN, Candidates
from anmi.errors import AnmiError
from anmi.selection.steps.beta_mixture import fit_betas
from anmi.selection.steps.elo_zones import gap
from anmi.selection.steps.gaussian_mixture import fit_gaussians
from anmi.selection.steps.registry import Context, Params, step

log = logging.getLogger(__name__)
_MOST_VALUES: Final = 50_000
# Standard deviation, in Elo, of the difference between two documents' Thurstone variables.
_ELO_SPREAD: Final = 200 * math.sqrt(2)


class Fitted(Protocol):
    """A mixture per row; that of one row serves any number of rows."""

    @property
    def sound(self) -> NDArray[np.bool_]:
        """False where one component describes the row better, [Q]."""
        ...

    def probability_lower(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Posterior of the lower component, [Q, M]."""
        ...


class Mixture(Params):
    """What the mixture is made of, and what it is fitted to."""

    column: str = Field("dense", description="Similarity; times P(true negative) it becomes the `hardness`.")
    measure: Literal["similarity", "elo_gap"] = Field(
        "similarity",
        description="What is fitted: the similarity, whose lower component holds the true negatives, or the Elo gap to "
        "the positive, whose higher component does. Similarity, as published.",
    )
    family: Literal["gaussian", "beta"] = Field(
        "gaussian",
        description="`gaussian`: as often retold. `beta`: ProGCL's own, on (s + 1)/2, or for Elo gaps on the chance of "
        "beating the positive.",
    )
    components: Literal[2, 3] = Field(
        2,
        description="Of Gaussians. 2: true and false negatives. 3 leaves room for one in between, as the ANMI 2.1 "
        "report offers; the true negatives stay those of the lowest.",
    )
    per: Literal["pooled", "query"] = Field(
        "pooled", description="One fit for all queries, or one per row; on fewer than 100 to 200 values one is noise."
    )
    fewest: int = Field(200, ge=10, description="Below this many values a fit is noise, and weights stay 1.")

    @model_validator(mode="after")
    def _three_gaussians(self) -> Mixture:
        if self.components != 2 and self.family != "gaussian":
            raise ValueError(f"there are 2 components of family {self.family}; take gaussian, or leave out components")
        return self


def fit(blocks: Iterable[Candidates], params: Mixture, context: Context) -> Fitted | None:
    """Fit one mixture to the undecided candidates of all queries; None, with a warning, when one component is better.

    With ``per: query`` each row fits its own when its weights are set; here it is only counted, for one warning, how
    many cannot.
    """
    if params.per == "query":
        _warn_of_rows(blocks, params)
        return None
    parts = [np.zeros(0)]
    for block in blocks:
        found = _measured(block, params)[block.undecided]
        parts.append(found[np.isfinite(found)])
    values = np.sort(np.concatenate(parts))
    if len(values) < params.fewest:
        log.warning("mixture: %d values are too few to fit a mixture; weights stay 1", len(values))
        return None
    # Every k-th of the sorted values has their distribution, whatever the order of the candidates.
    fitted = _family(params)(values[:: math.ceil(len(values) / _MOST_VALUES)][None, :])
    if not fitted.sound[0]:
        many = "two" if params.components == 2 else "three"
        log.warning("mixture: one %s fits as well as %s (by BIC); weights stay 1", _name(params), many)
        return None
    return fitted


def _warn_of_rows(blocks: Iterable[Candidates], params: Mixture) -> None:
    rows = few = single = 0
    for block in blocks:
        kept = block.query_verdict == OPEN
        enough, sound, _ = _fitted_rows(block, params)
        rows += int(kept.sum())
        few += int((kept & ~enough).sum())
        single += int((kept & enough & ~sound).sum())
    if few or single:
        log.warning(
            "mixture: of %d rows %d have fewer than %d values and %d are fitted as well by one %s (by BIC); their "
            "weights stay 1",
            *(rows, few, params.fewest, single, _name(params)),
        )


def _fitted_rows(
    block: Candidates, params: Mixture
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each row has values enough and is worth two components, [Q], and P(true negative), [Q, M]."""
    values = _measured(block, params)
    enough = (block.undecided & np.isfinite(values)).sum(axis=1) >= params.fewest
    sound, probability = np.zeros(len(block), np.bool_), np.ones_like(values)
    if enough.any():
        part = values[enough]
        fitted = _family(params)(np.sort(np.where(block.undecided[enough], part, np.nan), axis=1))
        sound[enough] = fitted.sound
        probability[enough] = fitted.probability_lower(part)
    probability[~sound] = 1.0
    return enough, sound, probability


def _measured(block: Candidates, params: Mixture) -> NDArray[np.float64]:
    """Return what is fitted, [Q, M]: the lower it is, the surer a candidate is a negative; NaN where unknown."""
    if params.measure == "elo_gap":
        distance = gap(block).astype(np.float64)
        return -distance if params.family == "gaussian" else scipy.special.ndtr(-distance / _ELO_SPREAD)
    similarity = block.columns[params.column].astype(np.float64)
    return similarity if params.family == "gaussian" else _unit(similarity, params.column)


def _unit(similarity: NDArray[np.float64], column: str) -> NDArray[np.float64]:
    """Map cosines to [0, 1]."""
    # A cosine computed in single or half precision may lie a little beyond 1.
    if (np.abs(similarity) > 1.01).any():
        raise AnmiError(
            f'mixture: a Beta distribution needs cosines, and "{column}" has values outside [−1, 1]; take the family '
            "gaussian for it"
        )
    return np.clip((similarity + 1) / 2, 0.0, 1.0)


def _family(params: Mixture) -> Any:
    return partial(fit_gaussians, count=params.components) if params.family == "gaussian" else fit_betas


def _name(params: Mixture) -> str:
    return "Gaussian" if params.family == "gaussian" else "Beta distribution"


@step(
    "mixture",
    Mixture,
    requires=lambda p: {p.column} | ({"elo"} if p.measure == "elo_gap" else set()),
    fit=fit,
    makes=("p_negative", "hardness"),
)
def mixture(block: Candidates, params: Mixture, context: Context) -> Candidates:
    """Multiply the weight by P(true negative); the column ``hardness`` becomes similarity · P(true negative).

    Where a Beta mixture is fitted to the similarity, that in the product is (s + 1)/2, as in ProGCL's code, and so is
    never negative. A candidate of unknown value has no weight where there is a fit.
    """
    fitted: Fitted | None = context.fitted
    values = _measured(block, params)
    if params.per == "query":
        negative = _fitted_rows(block, params)[2]
    else:
        negative = np.ones_like(values) if fitted is None else fitted.probability_lower(values)
    similarity = values if params.measure == "similarity" else block.columns[params.column]
    block = block.with_columns({"p_negative": negative, "hardness": similarity * negative})
    return replace(block, weight=(block.weight * np.nan_to_num(negative)).astype(np.float32))
