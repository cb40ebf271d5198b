"""What curricula there are, and their parameters."""

from __future__ import annotations

from typing import Annotated, Final

from anmi.training.options.part import OneOf, PartOptions


class NoCurriculum(PartOptions):
    """The best negatives of every row, in every step."""

    kind = "none"


CURRICULA: Final = (NoCurriculum,)
CurriculumOptions = Annotated[PartOptions, OneOf(*CURRICULA)]
