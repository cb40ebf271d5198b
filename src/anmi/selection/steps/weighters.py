"""Steps that scale the weight a candidate has as a negative."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from pydantic import Field, model_validator

from anmi.candidates import Candidates
from anmi.selection.steps.elo_zones import BORDERS, gap
from anmi.selection.steps.registry import Context, Params, step

# More than two gaps differ by, in Elo, and few enough digits for a float32 beside them.
_AHEAD: Final = 20_000.0


class Confidence(Params):
    """How the judged probability becomes a weight."""

    column: str = Field("p_relevant", description="Calibrated probability; `p_cross` is the cross-encoder's own.")
    unjudged: float = Field(
        0.5, ge=0, le=1, description="Weight factor of a candidate nobody judged; half, since nothing is known of it."
    )
    power: float = Field(1.0, gt=0, description="Exponent of (1 − p); above 1 doubts count more.")


@step("confidence", Confidence, requires=lambda p: {p.column})
def confidence(block: Candidates, params: Confidence, context: Context) -> Candidates:
    """Multiply the weight by the judge's confidence 1 − P(relevant) (methods §3.1)."""
    judged = block.columns[params.column]
    trust = np.where(np.isnan(judged), params.unjudged, (1.0 - judged) ** params.power)
    return replace(block, weight=(block.weight * trust).astype(np.float32))


class ZoneWeight(Params):
    """Borders of the gap zones in Elo and the weight inside each."""

    borders: tuple[float, ...] = Field(BORDERS, description="Danger | soft | Goldilocks | medium | easy, as published.")
    weights: tuple[float, ...] = Field(
        (0.0, 0.5, 1.0, 0.7, 0.3), description="One weight per zone; Goldilocks teaches most, danger nothing."
    )

    @model_validator(mode="after")
    def _fit_together(self) -> ZoneWeight:
        if list(self.borders) != sorted(set(self.borders)):
            raise ValueError(f"borders must rise from left to right: {self.borders}")
        if len(self.weights) != len(self.borders) + 1 or not all(0 <= weight <= 1 for weight in self.weights):
            raise ValueError(f"{len(self.borders)} borders need {len(self.borders) + 1} weights in [0, 1]")
        return self


@step("zone_weight", ZoneWeight, requires=lambda p: {"elo"}, makes=("zone_preference",))
def zone_weight(block: Candidates, params: ZoneWeight, context: Context) -> Candidates:
    """Multiply the weight by that of the Elo-gap zone; note the zone's order of preference (methods §2).

    The zone of the largest weight goes first, then all others by their gap, the smaller before the larger, whatever
    their weights; what weighs nothing comes last.
    """
    distance = gap(block)
    zone = np.digitize(distance, params.borders)
    weights = np.where(np.isnan(distance), 0.0, np.asarray(params.weights)[zone])
    first = (weights > 0) & (zone == np.argmax(params.weights))
    preference = _AHEAD * first - _AHEAD * (weights == 0) - np.nan_to_num(distance, nan=_AHEAD)
    block = block.with_columns({"zone_preference": preference})
    return replace(block, weight=(block.weight * weights).astype(np.float32))
