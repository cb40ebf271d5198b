"""From options to a curriculum."""

from __future__ import annotations

from anmi.training.curriculum.bandit import Bandit
from anmi.training.curriculum.learning_progress import LearningProgress
from anmi.training.curriculum.protocol import Curriculum
from anmi.training.curriculum.tiers import Tiers
from anmi.training.options.curricula import BanditOptions, LearningProgressOptions, NoCurriculum, TiersOptions
from anmi.training.options.part import PartOptions


def build_curriculum(options: PartOptions, steps: int, seed: int, negatives: int | None = None) -> Curriculum | None:
    """Return the curriculum that ``options`` describe, or None for none.

    Parameters
    ----------
    options
        One of :data:`anmi.training.options.curricula.CURRICULA`.
    steps
        Of the whole training.
    seed
        Of the training, for curricula that draw.
    negatives
        A row brings to a step at difficulty 0; None is all it has.
    """
    match options:
        case NoCurriculum():
            return None
        case TiersOptions():
            return Tiers(options, steps, negatives)
        case LearningProgressOptions():
            return LearningProgress(options, steps, negatives)
        case BanditOptions():
            return Bandit(options, steps, negatives, seed)
    raise ValueError(f"{options!r} is no curriculum")
