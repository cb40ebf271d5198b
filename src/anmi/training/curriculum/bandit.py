"""A curriculum by a bandit."""

from __future__ import annotations

import statistics

import numpy as np

from anmi import seeds
from anmi.training.curriculum.protocol import Curriculum, State
from anmi.training.curriculum.window import sliding_state
from anmi.training.options.curricula import BanditOptions

_REMEMBERED = 200


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

    kind = BanditOptions.kind
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
