"""Fixed tiers over the steps of a training."""

from __future__ import annotations

from itertools import accumulate

from anmi.training.curriculum.protocol import ByStep, State
from anmi.training.curriculum.window import TIERS, tier_state
from anmi.training.options.curricula import TiersOptions


class Tiers(ByStep):
    """Shows harder negatives besides the easier ones from tier to tier, whatever the training gives (methods §2)."""

    kind = TiersOptions.kind

    def __init__(self, options: TiersOptions, steps: int, negatives: int | None) -> None:
        self._options = options
        self._negatives = negatives
        self._ends = [share * steps for share in accumulate(options.shares)][: TIERS - 1]

    @property
    def state(self) -> State:
        """What holds for the next step."""
        # Shares such as a third are not exact; half a step is more than their sum can be off.
        tier = 1 + sum(self._step > end - 0.5 for end in self._ends)
        return tier_state(self._options, tier, self._negatives)
