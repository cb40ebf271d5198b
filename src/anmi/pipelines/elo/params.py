"""Parameters of the Elo ratings."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from anmi.candidates import MEASURED
from anmi.errors import nearest
from anmi.judging.pairwise import PairwiseOptions
from anmi.judging.rating import RatingOptions


class EloParams(RatingOptions):
    """Judges, comparison graph and prior."""

    pairwise: dict[str, PairwiseOptions] = Field(default={})

    @model_validator(mode="after")
    def _every_judge_is_known(self) -> Self:
        if strange := sorted(set(self.judges) - MEASURED):
            raise ValueError(f'judges weighs "{strange[0]}", which no stage measures: {nearest(strange[0], MEASURED)}')
        if unknown := [name for name in self.pairwise_judges if name not in self.pairwise]:
            raise ValueError(
                f'pairwise_judges weighs "{unknown[0]}", which pairwise does not describe; describe it there'
            )
        if idle := [name for name in self.pairwise if name not in self.pairwise_judges]:
            raise ValueError(f'pairwise describes "{idle[0]}", which has no weight; name it in pairwise_judges')
        return self
