"""A curriculum by learning progress."""

from __future__ import annotations

import math
import statistics

from anmi.training.curriculum.protocol import Curriculum, State
from anmi.training.curriculum.window import sliding_state
from anmi.training.options.curricula import LearningProgressOptions

_VALIDATIONS = 3


class LearningProgress(Curriculum):
    """Makes training harder while it makes progress, and easier when it goes backwards (methods §3.6).

    The idea is that of Graves et al., "Automated Curriculum Learning for Neural Networks", 2017; signals and policy
    are those of the ANMI 2.1 report. Every so many steps, as many as a window has unless told otherwise, the progress
    is the mean of what is asked for and known of

    - the relative decrease of the mean loss from the window before to this one;
    - the stability 1/(1 + CV) of the gradient norm in this window, minus the mean stability at all decisions before. CV
      is the coefficient of variation. Uncentred it lies in (0, 1] whatever happens, mostly above a half, and holds
      the mean of three signals above the threshold for rising;
    - the relative gain of the dev metric, its last three values against the three before (as many as there are: the
      last against the one before at first), once after each measurement.
    """

    kind = LearningProgressOptions.kind
    remembers = (
        "difficulty", "steps", "losses", "norms", "stabilities", "mean_stability", "validations", "validated",
    )  # fmt: skip

    def __init__(self, options: LearningProgressOptions, steps: int, negatives: int | None) -> None:
        self._options = options
        self._negatives = negatives
        self._window = options.window_steps or min(max(round(steps / 20), 5), 100)
        self._every = options.every or self._window
        self._difficulty = options.start
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
            made = {"loss": self._decrease, "gradient": self._stability, "validation": self._gain}
            signals = [signal for name in self._options.signals if (signal := made[name]()) is not None]
            if signals:
                self._difficulty = min(max(self._difficulty + self._change(statistics.fmean(signals)), 0.0), 1.0)
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

    def _change(self, progress: float) -> float:
        given = self._options
        if progress > given.rising:
            return given.up
        if progress < given.falling:
            return -given.down
        return given.push if progress < given.plateau else 0.0
