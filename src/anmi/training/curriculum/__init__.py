"""Curricula: in which order, and how hard, negatives are met; schedules: from which sources they come."""

from __future__ import annotations

import logging

from anmi.errors import AnmiError
from anmi.training.curriculum.protocol import Curriculum, State
from anmi.training.curriculum.schedules import Linear, Mix, Step, Triggered
from anmi.training.curriculum.windows import Bandit, LearningProgress, Tiers
from anmi.training.parts import (
    BanditOptions,
    LearningProgressOptions,
    LinearOptions,
    NoCurriculum,
    PartOptions,
    ScheduleOptions,
    StepOptions,
    TiersOptions,
    TriggeredOptions,
    check_sources,
)

__all__ = ["Curriculum", "State", "build_curriculum"]
log = logging.getLogger(__name__)


def build_curriculum(
    options: PartOptions,
    steps: int,
    seed: int,
    negatives: int | None = None,
    *,
    mix: Mix | None = None,
    epochs: int = 1,
    dev: bool = True,
) -> Curriculum | None:
    """Return the curriculum that ``options`` describe, or None for none.

    ``negatives`` are what a row brings to a step at difficulty 0 (None: all it has), ``mix`` the final shares of
    random, graph, latent and edited ones (None where negatives are mined); ``dev`` says whether the dev metric is
    measured.

    Raises
    ------
    AnmiError
        The curriculum does not go with where negatives come from, or with what is measured.
    """
    check_sources(options, mixed=mix is not None)
    match options:
        case NoCurriculum():
            return None
        case TiersOptions():
            return Tiers(options, steps, negatives)
        case LearningProgressOptions():
            return LearningProgress(options, steps, negatives)
        case BanditOptions():
            return Bandit(options, steps, negatives, seed)
        case ScheduleOptions() if mix is not None:
            return _schedule(options, mix, steps // epochs, epochs, dev=dev)
    raise ValueError(f"{options!r} is no curriculum")


def _schedule(options: ScheduleOptions, mix: Mix, epoch: int, epochs: int, *, dev: bool) -> Curriculum:
    match options:
        case LinearOptions():
            _say_if_unreached(options.warm_up, epochs, "linear")
            return Linear(options, mix, epoch)
        case StepOptions():
            _say_if_unreached(options.latent_from if mix[2] > 0 else options.warm_up, epochs, "step")
            return Step(options, mix, epoch)
        case TriggeredOptions():
            if options.measure == "validation" and not dev:
                raise AnmiError(
                    'training: curriculum "triggered" goes by the dev metric, and there are no dev queries; set '
                    "`measure: violations`"
                )
            return Triggered(options, mix, epoch)
    raise ValueError(f"{options!r} is no schedule")


def _say_if_unreached(end: float, epochs: int, kind: str) -> None:
    if end >= epochs:
        log.warning(
            'The schedule "%s" comes to its final shares after %g epochs and the training has %d: give it more epochs, '
            "or a shorter schedule",
            kind,
            end,
            epochs,
        )
