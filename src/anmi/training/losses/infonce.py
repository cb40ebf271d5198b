"""Weighted InfoNCE."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.logspace import weighted_logits


class WeightedInfoNCE(nn.Module):
    """Softmax cross-entropy of the positive against weighted negatives.

    ``-s⁺/t + log(exp(s⁺/t) + Σ wᵢ exp(sᵢ/t))``: the weights stand inside the denominator, so a negative of weight 0 is
    not there and one of weight 2 counts like two.

    Parameters
    ----------
    temperature
        The module that gives t.

    References
    ----------
    van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018.

    Examples
    --------
    >>> from anmi.training.temperature import Temperature
    >>> loss = WeightedInfoNCE(Temperature(1.0))
    >>> [round(x, 4) for x in loss(torch.tensor([0.5]), torch.tensor([[0.5]]), torch.zeros(1, 1)).tolist()]
    [0.6931]
    """

    def __init__(self, temperature: nn.Module) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row.

        Parameters
        ----------
        positive_similarity
            Shape [B].
        negative_similarity
            Shape [B, N]; N may be 0.
        log_weights
            Shape [B, N]; -inf removes a negative (padding, known positives).
        facts
            What the temperature may read.

        Returns
        -------
        torch.Tensor
            Shape [B], never negative; 0, with zero gradient, for a row without negatives.
        """
        return infonce(positive_similarity, negative_similarity, log_weights, self.temperature(facts))


def infonce(positive: Tensor, negatives: Tensor, log_weights: Tensor, temperatures: tuple[Tensor, Tensor]) -> Tensor:
    """Return what :class:`WeightedInfoNCE` does, from the positive's and the negatives' temperature."""
    own = positive[:, None] / temperatures[0]
    logits = torch.cat([own, weighted_logits(negatives, log_weights, temperatures[1])], dim=1)
    return torch.logsumexp(logits, dim=1) - own[:, 0]
