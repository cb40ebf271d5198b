"""Schedules: which of the mixed sources negatives come from as the training goes on (methods §5)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from anmi.training.curriculum.protocol import ByStep, Curriculum, State
from anmi.training.options.curricula import LinearOptions, StepOptions, TriggeredOptions

# Shares of random, graph, latent and edited negatives.
Mix = tuple[float, float, float, float]
RANDOM_ONLY: Final[Mix] = (1.0, 0.0, 0.0, 0.0)
STAGES: Final = 3


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

    kind = LinearOptions.kind

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

    kind = StepOptions.kind

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
    only. By ``clustering`` the share is that of documents whose nearest one is about another entity. By ``validation``
    a stage is mastered when the dev metric was measured ``patience`` times in it without a gain of ``min_gain`` over
    the best so far, since there is nothing more to be learned from it, and failed when the metric is ``max_drop`` below
    the best; what counts as the best begins anew after that. Between ``advance`` and ``retreat`` nothing happens, nor
    does it before a stage has lasted ``stay`` (forwards) or ``cool_down`` steps (backwards).

    Parameters
    ----------
    options
        Thresholds.
    mix
        The final shares.
    epoch
        Steps of an epoch.
    """

    kind = TriggeredOptions.kind
    remembers = ("place", "begun", "sum", "weight", "best", "idle")

    def __init__(self, options: TriggeredOptions, mix: Mix, epoch: int) -> None:
        self._options, self.by_clusters = options, options.measure == "clustering"
        self._stages = stages(mix)
        self._path = [0, *(i for i in (1, 2) if self._stages[i] != self._stages[i - 1])]
        self._stay = epoch if options.stay is None else options.stay
        self._cool_down = math.ceil(epoch / 2) if options.cool_down is None else options.cool_down
        self._place = 0
        self._begun = 0
        # Of the violations in this stage: the weighted sum, and the sum of the weights.
        self._sum = self._weight = 0.0
        self._best: float | None = None
        self._idle = 0
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
        kept = 0.5 ** (1 / given.half_life)
        self._sum = kept * self._sum + (1 - kept) * violations
        self._weight = kept * self._weight + (1 - kept)
        rate = self._sum / self._weight
        what = "scattered documents" if given.measure == "clustering" else "margin violations"
        if rate < given.advance:
            return 1, f"{what} {rate:.4f} are below {given.advance:g}"
        if rate > given.retreat:
            return -1, f"{what} {rate:.4f} are above {given.retreat:g}"
        return 0, ""

    def _by_dev(self, validation: float | None) -> tuple[int, str]:
        given = self._options
        if validation is None or not math.isfinite(validation):
            return 0, ""
        best, self._best = self._best, validation if self._best is None else max(self._best, validation)
        if best is None or validation > best + given.min_gain:
            self._idle = 0
            return 0, ""
        self._idle += 1
        if self._place > 0 and validation < best - given.max_drop:
            return -1, f"the dev metric {validation:.4f} is more than {given.max_drop:g} below {best:.4f}"
        if self._idle >= given.patience:
            return 1, f"the dev metric {validation:.4f} is no gain of {given.min_gain:g} over {best:.4f}"
        return 0, ""

    def _move(self, step: int, change: int, why: str, validation: float | None) -> None:
        place = self._place + change
        if not 0 <= place < len(self._path):
            return
        self.transitions.append(Transition(step, self._path[self._place] + 1, self._path[place] + 1, why))
        self._place, self._begun = place, step
        self._sum = self._weight = 0.0
        self._idle = 0
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
