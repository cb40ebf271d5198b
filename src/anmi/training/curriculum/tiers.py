"""Fixed tiers over the steps of a training."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from anmi.training.curriculum.protocol import State, checked_kind
from anmi.training.curriculum.window import TIERS, tier_state
from anmi.training.options.curricula import TiersOptions


class Tiers:
    """Shows harder negatives besides the easier ones from tier to tier, whatever the training gives (methods §2).

    Parameters
    ----------
    options
        How long each tier lasts.
    steps
        Of the whole training.
    negatives
        A row brings to a step.
    """

    def __init__(self, options: TiersOptions, steps: int, negatives: int | None) -> None:
        self._options = options
        self._negatives = negatives
        self._ends = [share * steps for share in accumulate(options.shares)][: TIERS - 1]
        self._step = 0

    @property
    def state(self) -> State:
        """What holds for the next step."""
        # Shares such as a third are not exact; half a step is more than their sum can be off.
        tier = 1 + sum(self._step > end - 0.5 for end in self._ends)
        return tier_state(self._options, tier, self._negatives)

    def observe(
        self, step: int, loss: float, grad_norm: float, validation: float | None, violations: float | None = None
    ) -> State:
        """Take in how many steps were made; what they gave does not matter."""
        self._step = step
        return self.state

    def state_dict(self) -> dict[str, Any]:
        """Return all it needs to go on elsewhere, as plain JSON values."""
        return {"kind": TiersOptions.kind, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._step = int(checked_kind(state, TiersOptions.kind)["step"])
