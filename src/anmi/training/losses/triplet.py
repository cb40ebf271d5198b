"""Triplet margin loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.logspace import without_lonely_rows


class Triplet(nn.Module):
    """Every negative is to lie a margin farther from the query than the positive, by cosine distance.

    ``Σ wᵢ max(0, d⁺ - dᵢ + m) / Σ wᵢ`` with d = 1 - s, so ``max(0, sᵢ - s⁺ + m)``. It is a mean over all negatives of
    the row, also those already far enough: among many in-batch negatives the few that still violate the margin weigh
    little. It has no temperature.

    Parameters
    ----------
    margin
        m, above 0; cosine distances lie in [0, 2].

    References
    ----------
    Schroff, Kalenichenko and Philbin, "FaceNet", CVPR 2015, equation 2.

    Examples
    --------
    >>> loss = Triplet(margin=0.2)
    >>> [round(x, 4) for x in loss(torch.tensor([0.5]), torch.tensor([[0.5, 0.1]]), torch.zeros(1, 2)).tolist()]
    [0.1]
    >>> loss.report()
    {'margin_violation_rate': 0.5}
    """

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__()
        if not margin > 0:
            raise ValueError(f"margin {margin} is not above 0")
        self.margin = margin
        self._violations = torch.tensor(0.0)

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row; shapes and special cases as in :class:`WeightedInfoNCE`."""
        if negative_similarity.shape[1] == 0:
            return positive_similarity * 0.0
        similarity, safe, lonely = without_lonely_rows(negative_similarity, log_weights)
        removed = torch.isneginf(log_weights)
        short = similarity.masked_fill(removed, 0.0) - positive_similarity[:, None] + self.margin
        counted = ~removed
        self._violations = ((short > 0) & counted).sum().detach() / counted.sum().clamp(min=1)
        losses = (torch.softmax(safe, dim=1) * functional.relu(short)).sum(dim=1)
        return losses.masked_fill(lonely, 0.0)

    def report(self) -> dict[str, float]:
        """Return the share of the last batch's negatives that were within the margin."""
        return {"margin_violation_rate": float(self._violations)}
