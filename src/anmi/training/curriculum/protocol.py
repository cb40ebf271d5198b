"""What a curriculum is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar


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
        Shares of random, graph, latent and edited negatives, for schedules of sources; None leaves them as they are.
    stage
        For schedules that go by stages: 1 random negatives only, 2 all but latent ones, 3 all.
    """

    difficulty: float
    low: float
    high: float
    negatives: int | None = None
    tier: int | None = None
    mix: tuple[float, float, float, float] | None = None
    stage: int | None = None

    def report(self) -> dict[str, float]:
        """Return the columns of the log."""
        counted = {"tier": self.tier, "stage": self.stage}
        window = {"low": self.low, "high": self.high} if self.mix is None else {}
        known = {name: float(value) for name, value in counted.items() if value is not None}
        return {"difficulty": self.difficulty, **known, **window}


class Curriculum(ABC):
    """Observes the training and says how hard the next step's negatives are to be."""

    # Attributes, without their underscore, that a checkpoint holds.
    remembers: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def state(self) -> State:
        """What holds for the next step."""

    @abstractmethod
    def observe(
        self, step: int, loss: float, grad_norm: float, validation: float | None, violations: float | None = None
    ) -> State:
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
            The dev metric, larger is better, where it was measured since the step before; else None.
        violations
            Share of the step's negatives that violate the margin, in [0, 1]; None where there is no margin.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return all it needs to go on elsewhere, as plain JSON values."""
        return {name: copy.deepcopy(getattr(self, f"_{name}")) for name in self.remembers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        for name in self.remembers:
            setattr(self, f"_{name}", copy.deepcopy(state[name]))


class ByStep(Curriculum):
    """What curricula share that go by the number of the step alone."""

    remembers = ("step",)
    _step = 0

    def observe(
        self, step: int, loss: float, grad_norm: float, validation: float | None, violations: float | None = None
    ) -> State:
        """Take in how many steps were made; what they gave does not matter."""
        self._step = step
        return self.state
