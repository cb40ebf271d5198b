"""Curricula with a window: which of the negatives that were mined for a row it is shown, and when."""

from __future__ import annotations

import math
import statistics
from typing import Final

import numpy as np

from anmi import seeds
from anmi.selection.steps.elo_zones import BORDERS, EloWindow
from anmi.training.curriculum.protocol import ByStep, Curriculum, State
from anmi.training.parts import BanditOptions, LearningProgressOptions, SlidingOptions, TiersOptions, WindowOptions

TIERS: Final = 4
# Of learning progress: thresholds of the progress, and by how much difficulty changes then; those of the report.
_RISING, _FALLING, _PLATEAU = 0.05, -0.02, 0.01
_UP, _DOWN, _PUSH = 0.05, 0.1, 0.02
_VALIDATIONS: Final = 3
# Decreases of the loss that the rewards of the bandit are scaled by.
_REMEMBERED: Final = 200


def sliding_state(options: SlidingOptions, difficulty: float, base: int | None) -> State:
    """Return the state at a difficulty.

    In Elo the window goes from 100 + 300(1 − d) to 400 + 200(1 − d) (methods §3.6). By rank it is half of the pool,
    from the half of the last places at d = 0 to that of the first at d = 1.

    ``base`` is how many negatives a row brings at difficulty 0; None leaves their number open.

    Examples
    --------
    >>> state = sliding_state(BanditOptions(), 0.5, 7)
    >>> state.low, state.high, state.negatives
    (250.0, 500.0, 9)
    """
    if options.window == "elo":
        low, high = EloWindow(difficulty=difficulty).window
    else:
        low, high = 0.5 * (1 - difficulty), 0.5 + 0.5 * (1 - difficulty)
    # Not round(), which takes halves to the even number.
    negatives = None if base is None else math.floor(base * (1 + options.growth * difficulty) + 0.5)
    return State(difficulty, low, high, negatives)


def tier_state(options: WindowOptions, tier: int, base: int | None) -> State:
    """Return the state in a tier, from 1 to 4.

    In Elo tier 1 sees gaps from 600 on, 2 from 400, 3 from 200 and 4 from 100 (methods §2). By rank tier 1 sees the
    last quarter of the pool, and every further one a quarter more.

    Examples
    --------
    >>> state = tier_state(TiersOptions(), 2, 7)
    >>> state.low, state.high, state.tier
    (400.0, inf, 2)
    """
    by_elo = options.window == "elo"
    low = BORDERS[TIERS - tier] if by_elo else 1 - tier / TIERS
    return State((tier - 1) / (TIERS - 1), low, math.inf if by_elo else 1.0, base, tier)


class Tiers(ByStep):
    """Shows harder negatives besides the easier ones from tier to tier, whatever the training gives (methods §2)."""

    def __init__(self, options: TiersOptions, steps: int, negatives: int | None) -> None:
        self._options = options
        self._negatives = negatives
        self._ends = [tier * steps / TIERS for tier in range(1, TIERS)]

    @property
    def state(self) -> State:
        """What holds for the next step."""
        tier = 1 + sum(self._step > end - 0.5 for end in self._ends)
        return tier_state(self._options, tier, self._negatives)


class LearningProgress(Curriculum):
    """Makes training harder while it makes progress, and easier when it goes backwards (methods §3.6).

    The idea is that of Graves et al., "Automated Curriculum Learning for Neural Networks", 2017; signals and policy
    are those of the ANMI 2.1 report. Every so many steps, as many as a window has unless told otherwise, the progress
    is the mean of what is known of

    - the relative decrease of the mean loss from the window before to this one;
    - the stability 1/(1 + CV) of the gradient norm in this window, minus the mean stability at all decisions before. CV
      is the coefficient of variation. Uncentred it lies in (0, 1] whatever happens, mostly above a half, and holds
      the mean of three signals above the threshold for rising;
    - the relative gain of the dev metric, its last three values against the three before (as many as there are: the
      last against the one before at first), once after each measurement.
    """

    remembers = (
        "difficulty", "steps", "losses", "norms", "stabilities", "mean_stability", "validations", "validated",
    )  # fmt: skip

    def __init__(self, options: LearningProgressOptions, steps: int, negatives: int | None) -> None:
        self._options = options
        self._negatives = negatives
        self._window = options.window_steps or min(max(round(steps / 20), 5), 100)
        self._every = options.every or self._window
        self._difficulty = 0.0
        self._steps = 0
        # Of the last two windows, and of the last one; None where gradients are not clipped, and so not measured.
        self._losses: list[float] = []
        self._norms: list[float | None] = []
        self._stabilities = 0
        self._mean_stability = 0.0
        self._validations: list[float] = []
        self._validated = False

    @property
    def state(self) -> State:
        """What holds for the next step."""
        return sliding_state(self._options, self._difficulty, self._negatives)

    def observe(
        self, step: int, loss: float, grad_norm: float, validation: float | None, violations: float | None = None
    ) -> State:
        """Take in a step, and set the difficulty anew when it was the last of a window."""
        if validation is not None:
            self._validations = [*self._validations, validation][-2 * _VALIDATIONS :]
            self._validated = True
        self._steps += 1
        self._losses = [*self._losses, loss][-2 * self._window :]
        self._norms = [*self._norms, grad_norm if math.isfinite(grad_norm) else None][-self._window :]
        if self._steps >= self._window and self._steps % self._every == 0:
            made = (self._decrease(), self._stability(), self._gain())
            signals = [signal for signal in made if signal is not None]
            if signals:
                self._difficulty = min(max(self._difficulty + _change(statistics.fmean(signals)), 0.0), 1.0)
        return self.state

    def _decrease(self) -> float | None:
        if len(self._losses) < 2 * self._window:
            return None
        before, now = (statistics.fmean(part) for part in (self._losses[: self._window], self._losses[self._window :]))
        return (before - now) / max(abs(before), 1e-12)

    def _stability(self) -> float | None:
        norms = [norm for norm in self._norms if norm is not None]
        if len(norms) < 2:
            return None
        mean = statistics.fmean(norms)
        stability = 1 / (1 + statistics.pstdev(norms, mean) / max(mean, 1e-12))
        mean_before, known = self._mean_stability, self._stabilities
        self._stabilities += 1
        self._mean_stability += (stability - mean_before) / self._stabilities
        if not self._options.centred:
            return stability
        return stability - mean_before if known else None

    def _gain(self) -> float | None:
        count = min(len(self._validations) // 2, _VALIDATIONS)
        if not self._validated or not count:
            return None
        self._validated = False
        now = statistics.fmean(self._validations[-count:])
        before = statistics.fmean(self._validations[-2 * count : -count])
        return (now - before) / max(abs(before), 1e-12)


def _change(progress: float) -> float:
    if progress > _RISING:
        return _UP
    if progress < _FALLING:
        return -_DOWN
    return _PUSH if progress < _PLATEAU else 0.0


class Bandit(Curriculum):
    """Chooses among difficulties by Thompson sampling (methods §3.6).

    Every arm is a difficulty with a Beta posterior of its reward, at first Beta(1, 1). An arm drawn is held for some
    steps, and rewarded twice, each time by α += w·r, β += w·(1 − r):

    - with w = 1 at the end of its steps. Losses under different difficulties do not compare, so what counts is the
      relative decrease from the first half of these steps to the second; r is its place between the 20th and the 80th
      percentile of all decreases so far, cut to [0, 1], which is how Graves et al. (2017) scale rewards;
    - when the dev metric is measured, r = 1 where it rose, 0 where it fell and ½ where it did neither; w is the
      share of the steps since the measurement before in which the arm was held.

    Parameters
    ----------
    options
        The arms.
    steps
        Of the whole training.
    negatives
        A row brings to a step at difficulty 0.
    seed
        Of the training; draws come from its stream ``training/bandit``, keyed by the step.
    """

    remembers = ("arm", "alpha", "beta", "losses", "decreases", "held", "validation")

    def __init__(self, options: BanditOptions, steps: int, negatives: int | None, seed: int) -> None:
        self._options = options
        self._negatives = negatives
        self._seed = seed
        self._window = options.window_steps or min(max(round(steps / 40), 5), 100)
        self._alpha = [1.0] * options.arms
        self._beta = [1.0] * options.arms
        self._losses: list[float] = []
        self._decreases: list[float] = []
        self._held = [0] * options.arms
        self._validation: float | None = None
        self._arm = self._draw(0)

    @property
    def state(self) -> State:
        """What holds for the next step."""
        return sliding_state(self._options, self._arm / (self._options.arms - 1), self._negatives)

    def observe(
        self, step: int, loss: float, grad_norm: float, validation: float | None, violations: float | None = None
    ) -> State:
        """Take in a step; reward the arm and draw the next one when its steps are over."""
        if validation is not None:
            self._validated(validation)
        self._held[self._arm] += 1
        self._losses.append(loss)
        if len(self._losses) >= self._window:
            self._reward(self._arm, self._scaled(self._decrease()), 1.0)
            self._losses = []
            self._arm = self._draw(step)
        return self.state

    def _draw(self, step: int) -> int:
        random = seeds.stream(self._seed, "training/bandit", str(step))
        return int(np.argmax(random.beta(self._alpha, self._beta)))

    def _reward(self, arm: int, reward: float, weight: float) -> None:
        self._alpha[arm] += weight * reward
        self._beta[arm] += weight * (1 - reward)

    def _decrease(self) -> float:
        half = len(self._losses) // 2
        before, now = statistics.fmean(self._losses[:half]), statistics.fmean(self._losses[half:])
        return (before - now) / max(abs(before), 1e-12)

    def _scaled(self, decrease: float) -> float:
        self._decreases = [*self._decreases, decrease][-_REMEMBERED:]
        low, high = np.quantile(self._decreases, [0.2, 0.8])
        return float(np.clip((decrease - low) / (high - low), 0, 1)) if high > low else 0.5

    def _validated(self, validation: float) -> None:
        before, self._validation = self._validation, validation
        steps = sum(self._held)
        if before is not None and steps:
            reward = 0.5 + 0.5 * float(np.sign(validation - before))
            for arm, held in enumerate(self._held):
                self._reward(arm, reward, held / steps)
        self._held = [0] * self._options.arms
