"""InfoNCE on one scale for all queries."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.checks import checked_share
from anmi.training.losses.logspace import weighted_logits


class PooledInfoNCE(nn.Module):
    """``(1 - share) · InfoNCE + share · pooled``, in which the negatives of all rows stand in every denominator.

    InfoNCE asks that a query's document be before its own negatives; that all similarities of one query are lower than
    those of another is nothing to it. Pooled, ``-s⁺/t + log(exp(s⁺/t) + Σᵢⱼ wᵢⱼ exp(sᵢⱼ/t))`` over the negatives j of
    all rows i, every positive is to be above every negative, as one threshold on the similarity wants it: at a low
    temperature it counts the pairs that the area under the ROC curve counts. It costs next to nothing, since the
    similarities are there.

    Parameters
    ----------
    temperature
        The module that gives t.
    share
        Of the pooled part, in [0, 1]; 0 is InfoNCE.

    Examples
    --------
    >>> from anmi.training.temperature import Temperature
    >>> loss = PooledInfoNCE(Temperature(1.0), share=1.0)
    >>> [round(x, 4) for x in loss(torch.zeros(2), torch.zeros(2, 1), torch.zeros(2, 1)).tolist()]  # log(1 + 2)
    [1.0986, 1.0986]
    """

    def __init__(self, temperature: nn.Module, share: float = 0.5) -> None:
        super().__init__()
        self.temperature = temperature
        self.share = checked_share("share", share)

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row; shapes and special cases as in :class:`WeightedInfoNCE`."""
        positive, negative = self.temperature(facts)
        lonely = torch.isneginf(log_weights).all(dim=1)
        if bool(lonely.all()):
            return positive_similarity * 0.0
        own = (positive_similarity[:, None] / positive)[:, 0][~lonely]
        logits = weighted_logits(negative_similarity, log_weights, negative)[~lonely]
        by_row = functional.softplus(torch.logsumexp(logits, dim=1) - own)
        pooled = functional.softplus(torch.logsumexp(logits, dim=(0, 1)) - own)
        losses = (1 - self.share) * by_row + self.share * pooled
        return (positive_similarity * 0.0).masked_scatter(~lonely, losses)
