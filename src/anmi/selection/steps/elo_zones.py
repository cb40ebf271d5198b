"""Steps that go by the Elo gap of a candidate to the positive (ANMI 2.0)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import scipy
from pydantic import Field

from anmi.candidates import Candidates
from anmi.ragged import Float32s
from anmi.selection.steps.registry import Context, Params, step

# Danger | soft | Goldilocks | medium | easy, and what each weighs, as published: Goldilocks teaches
# most.
BORDERS: Final = (100.0, 200.0, 400.0, 600.0)
_WEIGHTS: Final = np.array([0.0, 0.5, 1.0, 0.7, 0.3])
# More than two gaps differ by, in Elo, and few enough digits for a float32 beside them.
_AHEAD: Final = 20_000.0


def gap(block: Candidates) -> Float32s:
    """Elo of the query's first positive minus Elo of each candidate, [Q, M]."""
    return block.positive_columns["elo"][:, :1] - block.columns["elo"]


class EloGap(Params):
    """The danger zone of Elo gaps."""

    danger: float = Field(
        100.0, description="Gap in Elo below which a candidate is as good as the positive."
    )
    max_probability: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Reject when P(gap < danger) exceeds this; None goes by the estimate.",
    )


@step(
    "elo_gap",
    EloGap,
    requires=lambda p: {"elo", "gap_se"},
    thresholds=("danger",),
)
def elo_gap(block: Candidates, params: EloGap, context: Context) -> Candidates:
    """Reject candidates too close to the positive in Elo, by estimate or interval (methods §2)."""
    distance = gap(block)
    unrated = np.isnan(distance)
    block = block.rejected("unrated", unrated, "no Elo", "unsafe")
    if params.max_probability is None:
        close = ~unrated & (distance < params.danger)
        return block.rejected("elo_gap", close, f"gap < {params.danger:g} Elo", "unsafe")
    standard_error = np.maximum(block.columns["gap_se"], 1e-6)
    chance = scipy.special.ndtr((params.danger - distance) / standard_error)
    is_safe = unrated | (chance <= params.max_probability)
    rule = f"P(gap < {params.danger:g} Elo) > {params.max_probability:g}"
    return block.rejected("elo_gap", ~is_safe, rule, "unsafe")


class EloWindow(Params):
    """The difficulty window of the curriculum."""

    difficulty: float = Field(
        0.5,
        ge=0,
        le=1,
        description="0 asks for easy negatives, 1 for hard ones.",
    )

    @property
    def window(self) -> tuple[float, float]:
        """Smallest and largest gap inside, in Elo."""
        easy = 1 - self.difficulty
        return 100 + 300 * easy, 400 + 200 * easy


@step(
    "elo_window",
    EloWindow,
    requires=lambda p: {"elo"},
    makes=("preferred",),
)
def elo_window(block: Candidates, params: EloWindow, context: Context) -> Candidates:
    """Prefer gaps from 100 + 300(1 − d) to 400 + 200(1 − d) for difficulty d (methods §3.6).

    A gap below 100, the danger zone at any difficulty, is rejected all the same; larger gaps and
    candidates without a rating come after those inside, so no row is lost.
    """
    distance = gap(block)
    low, high = params.window
    inside = (distance >= low) & (distance <= high)
    block = block.rejected(
        "elo_window", distance < BORDERS[0], f"gap < {BORDERS[0]:g} Elo", "unsafe"
    )
    return block.with_columns({"preferred": inside})


@step("zone_weight", requires=lambda p: {"elo"}, makes=("zone_preference",))
def zone_weight(block: Candidates, params: Params, context: Context) -> Candidates:
    """Multiply the weight by that of the Elo-gap zone; note the order of preference (methods §2).

    The zone of the largest weight goes first, then all others by their gap, the smaller before the
    larger, whatever their weights; what weighs nothing comes last.
    """
    distance = gap(block)
    zone = np.digitize(distance, BORDERS)
    weights = np.where(np.isnan(distance), 0.0, _WEIGHTS[zone])
    is_first = (weights > 0) & (zone == np.argmax(_WEIGHTS))
    is_last = weights == 0
    preference = _AHEAD * is_first - _AHEAD * is_last
    preference -= np.nan_to_num(distance, nan=_AHEAD)
    block = block.with_columns({"zone_preference": preference})
    weight = block.weight * weights
    return replace(block, weight=weight.astype(np.float32))
