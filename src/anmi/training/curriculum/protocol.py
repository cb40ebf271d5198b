"""What a curriculum is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from anmi.errors import AnmiError


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


class Curriculum(Protocol):
    """Observes the training and says how hard the next step's negatives are to be."""

    @property
    def state(self) -> State:
        """What holds for the next step."""
        ...

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
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all it needs to go on elsewhere, as plain JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        ...


def checked_kind(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the saved state of a curriculum, or raise an AnmiError if it is of another kind."""
    if state.get("kind") != kind:
        raise AnmiError(
            f'the checkpoint holds a curriculum of the kind "{state.get("kind")}" and the training has "{kind}"; go on '
            "with the options it was begun with, or begin anew"
        )
    return state
