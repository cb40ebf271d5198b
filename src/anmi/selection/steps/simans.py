"""SimANS: negatives that are neither too near to the positive nor too far from it (Zhou et al. 2022)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anmi.candidates import Candidates
from anmi.selection.steps.registry import Context, Params, step
from anmi.selection.steps.samplers import choose, gumbel_keys

log = logging.getLogger(__name__)


class SimAns(Params):
    """Shape of the distribution that negatives are drawn from."""

    form: Literal["score", "released", "rank"] = Field(
        "score", description="exp(−a(s − s⁺ − b)²), the released code's (s − s⁺ + b)², or exp(−a·|rank − b·rank⁺|)."
    )
    a: float | None = Field(None, gt=0, description="How sharply it falls. None is 0.5, the paper's, or 1 for ranks.")
    b: float | None = Field(None, description="Where it peaks. None is 0, the paper's, or 1.5 for ranks.")
    weigh: bool = Field(
        False, description="Multiply weights by the importance 1/p of the chosen, the largest of a row taken as 1."
    )

    @property
    def constants(self) -> tuple[float, float]:
        """The values of a and b."""
        a, b = (1.0, 1.5) if self.form == "rank" else (0.5, 0.0)
        return (a if self.a is None else self.a, b if self.b is None else self.b)


def fit_scale(blocks: Iterable[Candidates], params: SimAns, context: Context) -> float:
    """Return the variance of s − s⁺ over the undecided candidates of all queries, 1 for ranks.

    `a` is divided by it: the paper's 0.5 is made for dot products.
    """
    if params.form == "rank":
        return 1.0
    gaps = [np.zeros(0)]
    for block in blocks:
        found = _gaps(block)[block.undecided]
        gaps.append(found[np.isfinite(found)])
    # Sorted, since the last bits of a sum depend on its order.
    variance = float(np.var(np.sort(np.concatenate(gaps)))) if sum(map(len, gaps)) else 0.0
    if variance < 1e-12:
        log.warning("simans: all score gaps are alike or unknown, so a is not scaled")
        return 1.0
    return variance


def _gaps(block: Candidates) -> NDArray[np.float64]:
    return block.columns["dense"].astype(np.float64) - block.positive_columns["dense"][:, :1]


def log_chances(block: Candidates, params: SimAns, variance: float = 1.0) -> NDArray[np.float64]:
    """Return the log-probability with which each candidate would be the first of its row to be drawn.

    Parameters
    ----------
    block
        Its undecided candidates of known score take part.
    params
        Form and constants. Ranks count from 0, so a positive on rank 0 draws form `rank` to the very top; a positive
        whose rank is unknown counts as behind all candidates of its row.
    variance
        Of the gaps, by which `a` is divided.

    Returns
    -------
    numpy.ndarray
        [Q, M]; NaN where a candidate cannot be drawn.
    """
    a, b = params.constants
    if params.form == "rank":
        rank = block.columns["dense_rank"].astype(np.float64) - 1
        own = block.positive_columns["dense_rank"][:, :1].astype(np.float64) - 1
        behind = np.max(np.nan_to_num(rank, nan=-1.0), axis=1, keepdims=True, initial=-1.0) + 1
        energy = -a * np.abs(rank - b * np.where(np.isnan(own), behind, own))
    else:
        peak = b if params.form == "score" else -b
        energy = -(a / variance) * (_gaps(block) - peak) ** 2
    energy = np.where(block.undecided & np.isfinite(energy), energy, -np.inf)
    largest = np.max(energy, axis=1, keepdims=True, initial=-1e300)
    # Added in the order of their size, so that the order of the candidates changes no bit.
    total = np.cumsum(np.sort(np.exp(energy - largest), axis=1), axis=1)[:, -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        result: NDArray[np.float64] = energy - largest - np.log(total)
    return np.where(np.isfinite(result), result, np.nan)


@step(
    "simans", SimAns, fit=fit_scale, makes=("importance",), sampler=True,
    requires=lambda p: {"dense", "dense_rank"} if p.form == "rank" else {"dense"},
)  # fmt: skip
def simans(block: Candidates, params: SimAns, context: Context) -> Candidates:
    """Draw n candidates without replacement around the positive's score or rank (methods §3.5).

    The paper draws 15 from the first 100 to 200 ranks: put `rank_window` before it. The column ``importance`` holds
    1/p of the chosen, p being the chance of the first draw, normalised to a mean of 1 over those of the row.
    """
    chances = log_chances(block, params, 1.0 if context.fitted is None else context.fitted)
    block = choose(block, gumbel_keys(block, chances, context.seed, "selection/simans"), context.negatives)
    inverse = np.where(block.negatives, -chances, -np.inf)
    relative = np.exp(inverse - np.max(inverse, axis=1, keepdims=True, initial=-1e300))
    count = np.maximum(block.negatives.sum(axis=1, keepdims=True), 1)
    mean = np.cumsum(np.sort(relative, axis=1), axis=1)[:, -1:] / count
    with np.errstate(invalid="ignore", divide="ignore"):
        importance = np.where(block.negatives, relative / mean, np.nan)
    block = block.with_columns({"importance": importance})
    if not params.weigh:
        return block
    return replace(block, weight=np.where(block.negatives, block.weight * relative, block.weight).astype(np.float32))
