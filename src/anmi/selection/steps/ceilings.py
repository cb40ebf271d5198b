"""Steps that reject candidates by a ceiling on their score, fixed or relative to a positive (NV-Retriever)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from pydantic import Field, field_validator, model_validator

from anmi.candidates import Candidates
from anmi.errors import nearest
from anmi.selection.steps.registry import Context, Params, step

# Named by what they do: the ratio is a ceiling, so a larger one is bolder. Notes that advise 0.98 for medical text
# and 0.90 for bold mining have it the wrong way round.
PRESETS: Final = {"strict": 0.90, "balanced": 0.95, "bold": 0.98}
_COSINES: Final = ("dense",)


class MaxScore(Params):
    """A ceiling that is the same for all queries."""

    column: str = Field("dense", description="Score that is compared.")
    max_score: float = Field(0.7, description="Keep candidates below it; 0.7 is NV-Retriever's for cosines.")


@step("max_score", MaxScore, requires=lambda p: {p.column}, thresholds=("max_score",))
def max_score(block: Candidates, params: MaxScore, context: Context) -> Candidates:
    """Keep s < ceiling, whatever the positive's score (NV-Retriever's TopK-Abs; methods §6)."""
    rule = f"{params.column} ≥ {params.max_score:g}"
    return block.rejected("max_score", ~(block.columns[params.column] < params.max_score), rule, "unsafe")


class MaxRatio(Params):
    """Ceiling relative to the positive's score."""

    column: str = Field("dense", description="Score that is compared.")
    max_ratio: float = Field(
        0.95,
        gt=0,
        le=1.5,
        description="Ceiling as a share of the positive's score, or `strict` (0.90), `balanced` (0.95), `bold` (0.98): "
        "larger is bolder. 0.95 is NV-Retriever's.",
    )
    adaptive: bool = Field(
        False,
        description="Lower the ratio by 0.02 where the positive's cosine is above 0.9 and raise it by 0.03, to at most "
        "1, where it is below 0.7. Off, as published.",
    )

    @field_validator("max_ratio", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in PRESETS and not value.replace(".", "", 1).isdigit():
            raise ValueError(f'there is no preset "{value}"; {nearest(value, PRESETS)}, or give a number')
        return PRESETS.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _adapts_to_cosines(self) -> MaxRatio:
        if self.adaptive and self.column not in _COSINES:
            raise ValueError(f'adaptive goes by cosines of 0.7 and 0.9, which "{self.column}" does not hold; leave it')
        return self


@step("max_ratio", MaxRatio, requires=lambda p: {p.column}, thresholds=("max_ratio",))
def max_ratio(block: Candidates, params: MaxRatio, context: Context) -> Candidates:
    """Keep s < s⁺ − |s⁺|(1 − p) for the ratio p (NV-Retriever's TopK-PercPos; methods §3.2).

    For positive scores this is s < p·s⁺; in this form the rule keeps its direction for negative ones. On the column
    ``elo`` it is the published Elo form, gap / Elo⁺ > 1 − p, as long as Elo⁺ > 0, that is for every strength above −5.
    Below that the published form turns round and this one does not.
    """
    positive = block.positive_columns[params.column][:, :1]
    ratio = np.full_like(positive, params.max_ratio, dtype=np.float64)
    if params.adaptive:
        ratio[positive > 0.9] -= 0.02
        ratio[positive < 0.7] = max(params.max_ratio, min(params.max_ratio + 0.03, 1.0))
    ceiling = positive - np.abs(positive) * (1 - ratio)
    about = ", adapted" if params.adaptive else ""
    rule = f"{params.column} ≥ {params.max_ratio:g}{about} of the positive's"
    return block.rejected("max_ratio", ~(block.columns[params.column] < ceiling), rule, "unsafe")


class Margin(Params):
    """Distance below the positive's score."""

    column: str = Field("dense", description="Score that is compared.")
    margin: float = Field(0.05, ge=0, description="Least distance below the positive; 0.05 is NV-Retriever's.")


@step("margin", Margin, requires=lambda p: {p.column}, thresholds=("margin",))
def margin(block: Candidates, params: Margin, context: Context) -> Candidates:
    """Keep s < s⁺ − margin (NV-Retriever's TopK-MarginPos; methods §3.2)."""
    ceiling = block.positive_columns[params.column][:, :1] - params.margin
    rule = f"{params.column} ≥ the positive's − {params.margin:g}"
    return block.rejected("margin", ~(block.columns[params.column] < ceiling), rule, "unsafe")
