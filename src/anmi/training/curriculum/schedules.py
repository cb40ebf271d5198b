"""Schedules: which of the mixed sources negatives come from as the training goes on (methods §5)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from anmi.training.curriculum.protocol import ByStep, Curriculum, State
from anmi.training.parts import LinearOptions, StepOptions, TriggeredOptions

# Shares of random, graph, latent and edited negatives.
Mix = tuple[float, float, float, float]
RANDOM_ONLY: Final[Mix] = (1.0, 0.0, 0.0, 0.0)
# Steps after which a share of violations counts half in the running mean: about 60 steps count, at 64 rows of 7
# negatives each 25,000, so that chance moves a share of 0.05 by less than a tenth of it.
_HALF_LIFE: Final = 20.0
# Gain over the best dev metric so far that is one, and fall below it that is one; less could be chance.
_MIN_GAIN, _MAX_DROP = 0.002, 0.01


@dataclass(frozen=True)
class Transition:
    """A change of the stage.

    Attributes
    ----------
    step
        Steps made before it.
    origin, target
        Stages, from 1 to 3.
    why
        In words.
    """

    step: int
    origin: int
    target: int
    why: str


def stages(mix: Mix) -> tuple[Mix, Mix, Mix]:
    """Return the shares of the stages that lead to a mix: random only, all but latent, and all.

    In the second the other shares make up for the latent one in proportion; where there are no others it is the first.

    Examples
    --------
    >>> stages((0.25, 0.25, 0.5, 0.0))[1]
    (0.5, 0.5, 0.0, 0.0)
    """
    random, graph, latent, edit = mix
    rest = random + graph + edit
    if latent == 0:
        return RANDOM_ONLY, mix, mix
    return RANDOM_ONLY, (random / rest, graph / rest, 0.0, edit / rest) if rest > 0 else RANDOM_ONLY, mix


def mixed_state(mix: Mix, stage: int | None = None) -> State:
    """Return the state of a mix; its difficulty is the share of negatives that are not random."""
    return State(1 - mix[0], -math.inf, math.inf, mix=mix, stage=stage)


class Linear(ByStep):
    """Goes from random negatives only to the final shares in a straight line, step by step.

    Examples
    --------
    >>> schedule = Linear(LinearOptions(warm_up=2), (0.2, 0.5, 0.3, 0.0), epoch=10)
    >>> schedule.observe(10, 1.0, 1.0, None).mix
    (0.6, 0.25, 0.15, 0.0)
    """

    def __init__(self, options: LinearOptions, mix: Mix, epoch: int) -> None:
        self._mix, self._last = mix, options.warm_up * epoch

    @property
    def state(self) -> State:
        """What holds for the next step."""
        if self._step >= self._last:
            return mixed_state(self._mix)
        way = self._step / self._last
        random, graph, latent, edit = (
            (1 - way) * start + way * end for start, end in zip(RANDOM_ONLY, self._mix, strict=True)
        )
        return mixed_state((random, graph, latent, edit))


class Step(ByStep):
    """Adds the harder sources at fixed times: see :func:`stages`."""

    def __init__(self, options: StepOptions, mix: Mix, epoch: int) -> None:
        self._stages = stages(mix)
        self._ends = [math.ceil(options.warm_up * epoch), math.ceil(options.latent_from * epoch)]

    @property
    def state(self) -> State:
        """What holds for the next step."""
        stage = 1 + sum(self._step >= end for end in self._ends)
        return mixed_state(self._stages[stage - 1], stage)

    @property
    def transitions(self) -> list[Transition]:
        """Changes of the stage so far."""
        return [
            Transition(end, stage, stage + 1, "as the schedule says")
            for stage, end in enumerate(self._ends, start=1)
            if end <= self._step
        ]


class Triggered(Curriculum):
    """Goes on to the next of the :func:`stages` when the model masters one, and back when it fails.

    A stage whose shares are those of the stage before is left out. By ``violations`` mastery is a running mean of the
    share of margin violations below ``advance``, failure one above ``retreat``; the mean is that of this stage's steps
    only. By ``validation`` a stage is mastered when the dev metric gained less than 0.002 over the best so far, since
    there is nothing more to be learned from it, and failed when it is 0.01 below the best; what counts as the best
    begins anew after that. Between ``advance`` and ``retreat`` nothing happens, nor does it before a stage has lasted
    an epoch (forwards), in which every row meets it, or half of one (backwards), as what is new violates the margin
    often at first.

    Parameters
    ----------
    options
        Thresholds.
    mix
        The final shares.
    epoch
        Steps of an epoch.
    """

    remembers = ("place", "begun", "sum", "weight", "best")

    def __init__(self, options: TriggeredOptions, mix: Mix, epoch: int) -> None:
        self._options = options
        self._stages = stages(mix)
        self._path = [0, *(i for i in (1, 2) if self._stages[i] != self._stages[i - 1])]
        self._stay, self._cool_down = epoch, math.ceil(epoch / 2)
        self._place = 0
        self._begun = 0
        # Of the violations in this stage: the weighted sum, and the sum of the weights.
        self._sum = self._weight = 0.0
        self._best: float | None = None
        self.transitions: list[Transition] = []

    @property
    def state(self) -> State:
        """What holds for the next step."""
        stage = self._path[self._place]
        return mixed_state(self._stages[stage], stage + 1)

    def observe(
        self, step: int, loss: float, grad_norm: float, validation: float | None, violations: float | None = None
    ) -> State:
        """Take in a step, and go to another stage where it gives reason to."""
        by_dev = self._options.measure == "validation"
        change, why = self._by_dev(validation) if by_dev else self._by_share(violations)
        lasted = step - self._begun
        if (change > 0 and lasted >= self._stay) or (change < 0 and lasted >= self._cool_down):
            self._move(step, change, why, validation)
        return self.state

    def _by_share(self, violations: float | None) -> tuple[int, str]:
        given = self._options
        if violations is None or not math.isfinite(violations):
            return 0, ""
        kept = 0.5 ** (1 / _HALF_LIFE)
        self._sum = kept * self._sum + (1 - kept) * violations
        self._weight = kept * self._weight + (1 - kept)
        rate = self._sum / self._weight
        if rate < given.advance:
            return 1, f"margin violations {rate:.4f} are below {given.advance:g}"
        if rate > given.retreat:
            return -1, f"margin violations {rate:.4f} are above {given.retreat:g}"
        return 0, ""

    def _by_dev(self, validation: float | None) -> tuple[int, str]:
        if validation is None or not math.isfinite(validation):
            return 0, ""
        best, self._best = self._best, validation if self._best is None else max(self._best, validation)
        if best is None or validation > best + _MIN_GAIN:
            return 0, ""
        if self._place > 0 and validation < best - _MAX_DROP:
            return -1, f"the dev metric {validation:.4f} is more than {_MAX_DROP:g} below {best:.4f}"
        return 1, f"the dev metric {validation:.4f} is no gain of {_MIN_GAIN:g} over {best:.4f}"

    def _move(self, step: int, change: int, why: str, validation: float | None) -> None:
        place = self._place + change
        if not 0 <= place < len(self._path):
            return
        self.transitions.append(Transition(step, self._path[self._place] + 1, self._path[place] + 1, why))
        self._place, self._begun = place, step
        self._sum = self._weight = 0.0
        if change < 0:
            # By violations it may be anything, and is not looked at.
            self._best = validation if validation is not None and math.isfinite(validation) else None

    def state_dict(self) -> dict[str, Any]:
        """Return all it needs to go on elsewhere, as plain JSON values."""
        return super().state_dict() | {"transitions": [asdict(change) for change in self.transitions]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        self.transitions = [Transition(**change) for change in state["transitions"]]
