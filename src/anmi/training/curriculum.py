"""Curricula: how hard the next negatives are, by steps, by observations, or by a bandit."""

from __future__ import annotations

import copy
import logging
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from anmi import seeds
from anmi.errors import AnmiError
from anmi.selection.steps.elo_zones import BORDERS, EloWindow
from anmi.training import parts
from anmi.training.parts import BanditOptions, WindowOptions

log = logging.getLogger(__name__)


# Shares of random, graph, latent and edited negatives.
Mix = tuple[float, float, float, float]
RANDOM_ONLY: Final[Mix] = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class State:
    """How far a curriculum has come.

    Attributes
    ----------
    difficulty
        From 0, easy, to 1, hard.
    low, high
        Gaps to the positive that negatives are drawn from, in the unit of the pool's gaps.
    negatives
        Negatives a row brings to a step; None is all there are.
    tier
        For those who count in tiers, from 1 to 4.
    mix
        Shares of random, graph, latent and edited negatives, for schedules of sources; None leaves
        them as they are.
    stage
        For schedules that go by stages: 1 random negatives only, 2 all but latent ones, 3 all.
    """

    difficulty: float
    low: float
    high: float
    negatives: int | None = None
    tier: int | None = None
    mix: Mix | None = None
    stage: int | None = None

    def report(self) -> dict[str, float]:
        """Return the columns of the log."""
        columns = {"difficulty": self.difficulty, "tier": self.tier, "stage": self.stage}
        if self.mix is None:
            columns |= {"low": self.low, "high": self.high}
        return {name: float(value) for name, value in columns.items() if value is not None}


class Observation(NamedTuple):
    """What a step gave: see :meth:`Curriculum.observe`."""

    step: int
    loss: float
    grad_norm: float
    validation: float | None
    violations: float | None


class Course(NamedTuple):
    """The training that a curriculum is for.

    Attributes
    ----------
    steps, epoch
        Of all of it, and of an epoch.
    seed
        Of the training.
    negatives
        That a row brings to a step at difficulty 0; None is all there are.
    mix
        The final shares of mixed sources.
    """

    steps: int = 0
    epoch: int = 1
    seed: int = 0
    negatives: int | None = None
    mix: Mix = RANDOM_ONLY


class Curriculum:
    """Says how hard the next step's negatives are, by what it observes; the base says nothing."""

    # Attributes, without their underscore, that a checkpoint holds.
    remembers: ClassVar[tuple[str, ...]] = ("step",)

    def __init__(self, options: Any = None, course: Course = Course()) -> None:  # noqa: B008
        self._options = options
        self._course = course
        self._step = 0

    @property
    def state(self) -> State | None:
        """What holds for the next step; None where all steps are alike."""
        return None

    @property
    def transitions(self) -> list[dict[str, Any]]:
        """Changes of the stage so far: ``step, origin, target, why``."""
        return []

    def observe(
        self,
        step: int,
        loss: float,
        grad_norm: float,
        validation: float | None,
        violations: float | None = None,
    ) -> State | None:
        """Take in what step number ``step`` (from 1) gave, and return the state for the next one.

        Parameters
        ----------
        step
            Steps made so far.
        loss
            Of that step.
        grad_norm
            Norm of its gradient before clipping.
        validation
            The dev metric, larger is better, where it was measured since the step before; else
            None.
        violations
            Share of the step's negatives that violate the margin, in [0, 1]; None where there is no
            margin.
        """
        self._look(Observation(step, loss, grad_norm, validation, violations))
        self._step = step
        return self.state

    def _look(self, observed: Observation) -> None:
        # Those that go by the number of the step alone need nothing else.
        return

    def state_dict(self) -> dict[str, Any]:
        """Return all it needs to go on elsewhere, as plain JSON values."""
        return {name: copy.deepcopy(getattr(self, f"_{name}")) for name in self.remembers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        for name in self.remembers:
            setattr(self, f"_{name}", copy.deepcopy(state[name]))


TIERS: Final = 4
# Of learning progress: thresholds of the progress, and by how much difficulty changes then; those
# of the report.
_RISING = 0.05
_FALLING = -0.02
_PLATEAU = 0.01
_UP = 0.05
_DOWN = 0.1
_PUSH = 0.02
_VALIDATIONS: Final = 3
_PUBLISHED_VALIDATIONS: Final = 5
# Share of negatives that come on top at difficulty 1 (methods §3.6).
_GROWTH: Final = 0.5


def sliding_state(options: WindowOptions, difficulty: float, base: int | None) -> State:
    """Return the state at a difficulty.

    In Elo the window goes from 100 + 300(1 − d) to 400 + 200(1 − d) (methods §3.6). By rank it is
    half of the pool, from the half of the last places at d = 0 to that of the first at d = 1.

    ``base`` is how many negatives a row brings at difficulty 0; None leaves their number open.

    Examples
    --------
    >>> state = sliding_state(BanditOptions(), 0.5, 7)
    >>> state.low, state.high, state.negatives
    (250.0, 500.0, 8)
    """
    if options.window == "elo":
        low, high = EloWindow(difficulty=difficulty).window
    else:
        low = 0.5 * (1 - difficulty)
        high = 0.5 + 0.5 * (1 - difficulty)
    negatives = None if base is None else int(base * (1 + _GROWTH * difficulty))
    return State(difficulty, low, high, negatives)


class Tiers(Curriculum):
    """Shows harder negatives besides the easier ones from tier to tier (methods §2).

    In Elo tier 1 sees gaps from 600 on, 2 from 400, 3 from 200 and 4 from 100. By rank tier 1 sees
    the last quarter of the pool, and every further one a quarter more.
    """

    @property
    def state(self) -> State:
        """What holds for the next step."""
        steps_per_tier = self._course.steps / TIERS
        tier = 1 + sum(self._step > number * steps_per_tier - 0.5 for number in range(1, TIERS))
        by_elo = self._options.window == "elo"
        low, high = (BORDERS[TIERS - tier], math.inf) if by_elo else (1 - tier / TIERS, 1.0)
        return State((tier - 1) / (TIERS - 1), low, high, self._course.negatives, tier)


class LearningProgress(Curriculum):
    """Makes training harder while it makes progress, easier when it does not (methods §3.6).

    The idea is that of Graves et al., "Automated Curriculum Learning for Neural Networks", 2017;
    signals and policy are those of the ANMI 2.1 report. After every window of steps, or every
    ``every`` steps, the progress is the mean of what is known of the signals

    - the relative decrease of the mean loss from the window before to this one;
    - the stability 1/(1 + CV) of the gradient norm in this window, minus the mean stability at all
      decisions before. CV is the coefficient of variation. Uncentred it lies in (0, 1] whatever
      happens, mostly above a half, and holds the mean of three signals above the threshold for
      rising;
    - the relative gain of the dev metric, its last three values against the three before (as many
      as there are: the last against the one before at first), once after each measurement.

    As published it decides in every step, by the two windows of 100 steps behind it: the decrease
    and the uncentred stability, each 0 as long as its windows are not full. So difficulty is 1
    after 50 steps and stays there. The gain is 0 there before the fifth measurement, and counts in
    every step.
    """

    remembers = (
        "difficulty",
        "observations",
        "losses",
        "norms",
        "stabilities",
        "mean_stability",
        "validations",
        "validated",
    )

    def __init__(self, options: parts.LearningProgressOptions, course: Course) -> None:
        super().__init__(options, course)
        usual = 100 if options.as_published else min(max(round(course.steps / 20), 5), 100)
        self._window = options.window_steps or usual
        self._every = options.every or (1 if options.as_published else self._window)
        signals = ("loss", "gradient", "validation")
        self._signal_names = options.signals or signals[: 2 if options.as_published else 3]
        self._difficulty = 0.0
        self._observations = 0
        # Of the last two windows, and of the last one; None where gradients are not clipped, and so
        # not measured.
        self._losses: list[float] = []
        self._norms: list[float | None] = []
        self._stabilities = 0
        self._mean_stability = 0.0
        self._validations: list[float] = []
        self._validated = False

    @property
    def state(self) -> State:
        """What holds for the next step."""
        return sliding_state(self._options, self._difficulty, self._course.negatives)

    def _look(self, observed: Observation) -> None:
        if observed.validation is not None:
            self._validations = [*self._validations, observed.validation][-2 * _VALIDATIONS :]
            self._validated = True
        self._observations += 1
        is_due = self._observations % self._every == 0
        if self._options.as_published and not is_due:
            return
        self._losses = [*self._losses, observed.loss][-2 * self._window :]
        norm = observed.grad_norm if math.isfinite(observed.grad_norm) else None
        self._norms = [*self._norms, norm][-self._window :]
        signals = self._signals() if is_due else []
        if signals:
            difficulty = self._difficulty + _change(statistics.fmean(signals))
            self._difficulty = min(max(difficulty, 0.0), 1.0)

    def _signals(self) -> list[float]:
        """What a decision goes by."""
        if self._options.as_published:
            is_full = len(self._norms) == self._window
            progress = {
                "loss": self._decrease(),
                "gradient": self._steadiness() if is_full else None,
                "validation": self._published_gain(),
            }
            return [progress[kind] or 0.0 for kind in self._signal_names]
        measures = {"loss": self._decrease, "gradient": self._stability, "validation": self._gain}
        signals = (measures[kind]() for kind in self._signal_names)
        return [signal for signal in signals if signal is not None]

    def _decrease(self) -> float | None:
        if len(self._losses) < 2 * self._window:
            return None
        return -_relative_gain(self._losses[: self._window], self._losses[self._window :])

    def _steadiness(self) -> float | None:
        """1/(1 + CV) of the norms of the window."""
        norms = [norm for norm in self._norms if norm is not None]
        if len(norms) < 2:
            return None
        mean = statistics.fmean(norms)
        return 1 / (1 + statistics.pstdev(norms, mean) / max(mean, 1e-12))

    def _stability(self) -> float | None:
        if (stability := self._steadiness()) is None:
            return None
        mean_before = self._mean_stability
        self._stabilities += 1
        self._mean_stability += (stability - mean_before) / self._stabilities
        return stability - mean_before if self._stabilities > 1 else None

    def _published_gain(self) -> float | None:
        values = self._validations
        if len(values) < _PUBLISHED_VALIDATIONS:
            return None
        return _relative_gain(values[:-_VALIDATIONS], values[-_VALIDATIONS:])

    def _gain(self) -> float | None:
        count = min(len(self._validations) // 2, _VALIDATIONS)
        if not self._validated or not count:
            return None
        self._validated = False
        return _relative_gain(self._validations[-2 * count : -count], self._validations[-count:])


def _relative_gain(before: Sequence[float], now: Sequence[float]) -> float:
    mean_before = statistics.fmean(before)
    return (statistics.fmean(now) - mean_before) / max(abs(mean_before), 1e-12)


def _change(progress: float) -> float:
    if progress > _RISING:
        return _UP
    if progress < _FALLING:
        return -_DOWN
    return _PUSH if progress < _PLATEAU else 0.0


# Reward above which an arm has won, as published.
_HALF: Final = 0.5


class Bandit(Curriculum):
    """Chooses among difficulties by Thompson sampling (methods §3.6).

    Every arm is a difficulty with a Beta posterior of its reward, at first Beta(1, 1). An arm drawn
    is held until the dev metric is measured, whose value r rewards it by α += r, β += 1 − r; as
    published r counts as 1 above ½, and else as 0. Draws come from the stream ``training/bandit``,
    keyed by the step.
    """

    remembers = ("arm", "alpha", "beta", "held")

    def __init__(self, options: BanditOptions, course: Course) -> None:
        super().__init__(options, course)
        self._alpha = [1.0] * options.arms
        self._beta = [1.0] * options.arms
        self._held = False
        self._arm = self._draw(0)

    @property
    def state(self) -> State:
        """What holds for the next step."""
        difficulty = self._arm / (self._options.arms - 1)
        return sliding_state(self._options, difficulty, self._course.negatives)

    def _look(self, observed: Observation) -> None:
        # What was measured before the first step is nobody's.
        if observed.validation is not None and self._held:
            reward = min(max(observed.validation, 0.0), 1.0)
            if self._options.as_published:
                reward = float(reward > _HALF)
            self._alpha[self._arm] += reward
            self._beta[self._arm] += 1 - reward
            self._arm = self._draw(observed.step)
        self._held = True

    def _draw(self, step: int) -> int:
        random = seeds.stream(self._course.seed, "training/bandit", str(step))
        return int(np.argmax(random.beta(self._alpha, self._beta)))


# Steps after which a share of violations counts half in the running mean: about 60 steps count, at
# 64 rows of 7 negatives each 25,000, so that chance moves a share of 0.05 by less than a tenth of
# it.
_HALF_LIFE: Final = 20.0
# Gain over the best dev metric so far that is one, and fall below it that is one; less could be
# chance.
_MIN_GAIN = 0.002
_MAX_DROP = 0.01


def stages(mix: Mix) -> tuple[Mix, Mix, Mix]:
    """Return the shares of the stages that lead to a mix: random only, all but latent, and all.

    In the second the other shares make up for the latent one in proportion; where there are no
    others it is the first.

    Examples
    --------
    >>> stages((0.25, 0.25, 0.5, 0.0))[1]
    (0.5, 0.5, 0.0, 0.0)
    """
    random, graph, latent, edit = mix
    if latent == 0:
        return RANDOM_ONLY, mix, mix
    total = random + graph + edit
    if total == 0:
        return RANDOM_ONLY, RANDOM_ONLY, mix
    return RANDOM_ONLY, (random / total, graph / total, 0.0, edit / total), mix


def mixed_state(mix: Mix, stage: int | None = None) -> State:
    """Return the state of a mix; its difficulty is the share of negatives that are not random."""
    return State(1 - mix[0], -math.inf, math.inf, mix=mix, stage=stage)


class Linear(Curriculum):
    """Goes from random negatives only to the final shares in a straight line, step by step.

    Examples
    --------
    >>> course = Course(epoch=10, mix=(0.2, 0.5, 0.3, 0.0))
    >>> schedule = Linear(parts.LinearOptions(warm_up=2), course)
    >>> schedule.observe(10, 1.0, 1.0, None).mix
    (0.6, 0.25, 0.15, 0.0)
    """

    @property
    def state(self) -> State:
        """What holds for the next step."""
        last = self._options.warm_up * self._course.epoch
        mix = self._course.mix
        if self._step >= last:
            return mixed_state(mix)
        progress = self._step / last
        random, graph, latent, edit = (
            (1 - progress) * start + progress * final
            for start, final in zip(RANDOM_ONLY, mix, strict=True)
        )
        return mixed_state((random, graph, latent, edit))


class Step(Curriculum):
    """Adds the harder sources at fixed times: see :func:`stages`."""

    def __init__(self, options: parts.StepOptions, course: Course) -> None:
        super().__init__(options, course)
        self._stages = stages(course.mix)
        epochs = (options.warm_up, options.latent_from)
        self._ends = [math.ceil(count * course.epoch) for count in epochs]

    @property
    def state(self) -> State:
        """What holds for the next step."""
        stage = 1 + sum(self._step >= end for end in self._ends)
        return mixed_state(self._stages[stage - 1], stage)

    @property
    def transitions(self) -> list[dict[str, Any]]:
        """Changes of the stage so far."""
        return [
            {"step": end, "origin": stage, "target": stage + 1, "why": "as the schedule says"}
            for stage, end in enumerate(self._ends, start=1)
            if end <= self._step
        ]


class Triggered(Curriculum):
    """Goes on to the next of the :func:`stages` when the model masters one, and back when it fails.

    A stage whose shares are those of the stage before is left out. By ``violations`` mastery is a
    running mean of the share of margin violations below ``advance``, failure one above ``retreat``;
    the mean is that of this stage's steps only. By ``validation`` a stage is mastered when the dev
    metric gained less than 0.002 over the best so far, since there is nothing more to be learned
    from it, and failed when it is 0.01 below the best; what counts as the best begins anew after
    that. Between ``advance`` and ``retreat`` nothing happens, nor does it before a stage has lasted
    an epoch (forwards), in which every row meets it, or half of one (backwards), as what is new
    violates the margin often at first.
    """

    remembers = ("place", "begun", "sum", "weight", "best", "transitions")

    def __init__(self, options: parts.TriggeredOptions, course: Course) -> None:
        super().__init__(options, course)
        self._stages = stages(course.mix)
        self._path = [0, *(i for i in (1, 2) if self._stages[i] != self._stages[i - 1])]
        self._place = self._begun = 0
        # Of the violations in this stage: the weighted sum, and the sum of the weights.
        self._sum = self._weight = 0.0
        self._best: float | None = None
        self._transitions: list[dict[str, Any]] = []

    @property
    def state(self) -> State:
        """What holds for the next step."""
        stage = self._path[self._place]
        return mixed_state(self._stages[stage], stage + 1)

    @property
    def transitions(self) -> list[dict[str, Any]]:
        """Changes of the stage so far."""
        return self._transitions

    def _look(self, observed: Observation) -> None:
        by_dev = self._options.measure == "validation"
        change, why = (
            self._by_dev(observed.validation) if by_dev else self._by_share(observed.violations)
        )
        epoch = self._course.epoch
        min_steps = {1: epoch, 0: math.inf, -1: math.ceil(epoch / 2)}[change]
        if observed.step - self._begun >= min_steps:
            self._move(observed.step, change, why, observed.validation)

    def _by_share(self, violations: float | None) -> tuple[int, str]:
        options = self._options
        if violations is None or not math.isfinite(violations):
            return 0, ""
        decay = 0.5 ** (1 / _HALF_LIFE)
        self._sum = decay * self._sum + (1 - decay) * violations
        self._weight = decay * self._weight + (1 - decay)
        rate = self._sum / self._weight
        if rate < options.advance:
            return 1, f"margin violations {rate:.4f} are below {options.advance:g}"
        if rate > options.retreat:
            return -1, f"margin violations {rate:.4f} are above {options.retreat:g}"
        return 0, ""

    def _by_dev(self, validation: float | None) -> tuple[int, str]:
        if validation is None or not math.isfinite(validation):
            return 0, ""
        best = self._best
        self._best = validation if self._best is None else max(self._best, validation)
        if best is None or validation > best + _MIN_GAIN:
            return 0, ""
        if self._place > 0 and validation < best - _MAX_DROP:
            why = f"the dev metric {validation:.4f} is more than {_MAX_DROP:g} below {best:.4f}"
            return -1, why
        return 1, f"the dev metric {validation:.4f} is no gain of {_MIN_GAIN:g} over {best:.4f}"

    def _move(self, step: int, change: int, why: str, validation: float | None) -> None:
        place = self._place + change
        if not 0 <= place < len(self._path):
            return
        stages = {"origin": self._path[self._place] + 1, "target": self._path[place] + 1}
        self._transitions.append({"step": step, **stages, "why": why})
        self._place = place
        self._begun = step
        self._sum = self._weight = 0.0
        if change < 0:
            self._best = validation


KINDS: Final[dict[str, type[Curriculum]]] = {
    "none": Curriculum,
    "tiers": Tiers,
    "learning_progress": LearningProgress,
    "bandit": Bandit,
    "linear": Linear,
    "step": Step,
    "triggered": Triggered,
}


def build_curriculum(
    options: parts.CurriculumOptions,
    steps: int,
    seed: int,
    negatives: int | None = None,
    *,
    mix: Mix | None = None,
    epochs: int = 1,
    dev: bool = True,
) -> Curriculum:
    """Return the curriculum that ``options`` describe.

    ``negatives`` are what a row brings to a step at difficulty 0 (None: all it has), ``mix`` the
    final shares of random, graph, latent and edited ones (None where negatives are mined); ``dev``
    says whether the dev metric is measured.

    Raises
    ------
    AnmiError
        The curriculum does not go with where negatives come from, or with what is measured.
    """
    parts.check_sources(options, mixed=mix is not None)
    if parts.goes_by_dev(options) and not dev:
        raise AnmiError(
            f'training: curriculum "{options.kind}" goes by the dev metric, and there are no dev'
            " queries; choose another, or for triggered `measure: violations`"
        )
    course = Course(steps, steps // epochs, seed, negatives, mix or RANDOM_ONLY)
    has_latent = options.kind == "step" and course.mix[2] > 0
    last_epoch = getattr(options, "latent_from" if has_latent else "warm_up", 0)
    if last_epoch >= epochs:
        log.warning(
            'The schedule "%s" comes to its final shares after %g epochs and the training has %d:'
            " give it more epochs, or a shorter schedule",
            options.kind,
            last_epoch,
            epochs,
        )
    return KINDS[options.kind](options, course)
