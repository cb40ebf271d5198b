"""From options to a curriculum."""

from __future__ import annotations

from anmi.training.curriculum.protocol import Curriculum
from anmi.training.options.curricula import NoCurriculum
from anmi.training.options.part import PartOptions


def build_curriculum(options: PartOptions, steps: int, seed: int) -> Curriculum | None:
    """Return the curriculum that ``options`` describe, or None for none.

    Parameters
    ----------
    options
        One of :data:`anmi.training.options.curricula.CURRICULA`.
    steps
        Of the whole training.
    seed
        Of the training, for curricula that draw.
    """
    match options:
        case NoCurriculum():
            return None
    raise ValueError(f"{options!r} is no curriculum")
