"""A loss whose negatives were drawn by a learned SimANS (AdaptiveSimANS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from anmi.training.batch import Row
from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.around import Around
from anmi.training.simans import LearnableSimAns

# The judgment that says where in its row's pool a drawn negative stands.
SLOT: Final = "slot"


class DrawnBySimAns(Around):
    """Any loss, whose gradient reaches the a and b by which its negatives were drawn.

    A drawn negative counts as it is, so that the loss is that of the draw; its gradient by the weight goes on to how
    far a softmax would have drawn it (straight-through Gumbel-softmax, Jang et al. 2017). What was not drawn is not
    encoded, and has no say.

    A loss falls with the weight of its hardest negatives. Learned by it, as the ANMI 2.1 report has it, the draw
    tends to negatives that are easier; nothing here holds it.

    Parameters
    ----------
    loss
        Any loss of this package whose negatives have weights.
    drawing
        What is learned of the draw.
    relaxation
        Temperature of the softmax.
    column
        Judgment that chances go by; :meth:`prepare` takes the variance of its gaps to the positive.

    References
    ----------
    Zhou et al., "SimANS", EMNLP 2022, arXiv 2210.11773; a and b learned as in the ANMI 2.1 report (methods §3.5).
    """

    def __init__(self, loss: nn.Module, drawing: LearnableSimAns, relaxation: float, column: str) -> None:
        super().__init__(loss)
        self.drawing, self.relaxation = drawing, relaxation
        self._column = column
        # Of the batch in hand, [B, places of the pool]; the sampler leaves it here.
        self.relaxed: Tensor | None = None

    def prepare(self, rows: Sequence[Row]) -> None:
        """Take the variance of the gaps from all rows, and let the loss inside see them, if it wants to."""
        if self.drawing.form == "score" and rows:
            judged = [row.judged[self._column] for row in rows]
            gaps = np.concatenate([np.subtract(values, own) for own, values in judged])
            gaps = np.sort(gaps[np.isfinite(gaps)])
            if len(gaps) and gaps.var() > 1e-12:
                self.drawing.variance.fill_(float(gaps.var()))
        super().prepare(rows)

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`."""
        slot = facts.judged.get(SLOT)
        if slot is not None and self.relaxed is not None:
            drawn = torch.isfinite(slot)
            soft = self.relaxed.to(log_weights.dtype).gather(1, slot.nan_to_num(0.0).long())
            # A weight of 1 with the gradient of the softmax.
            log_weights = log_weights + torch.where(drawn, torch.log1p(soft - soft.detach()), 0.0)
        result: Tensor = self.loss(positive_similarity, negative_similarity, log_weights, facts)
        return result

    def report(self) -> dict[str, float]:
        """Return the loss's numbers, and a and b."""
        numbers = {"simans_a": float(self.drawing.a.detach()), "simans_b": float(self.drawing.b.detach())}
        return super().report() | numbers
