"""Debiased contrastive loss: corrects for negatives that are in truth positives."""

from __future__ import annotations

import math
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.logspace import weighted_logits, without_lonely_rows
from anmi.training.losses.tau_plus import TauPlus

_SMALLEST_MEAN: Final = 1e-8


class DebiasedContrastive(nn.Module):
    """Contrastive loss whose negative term has the expected share of false negatives subtracted.

    With Σ = Σᵢ wᵢ exp(sᵢ/t), N = Σᵢ wᵢ and τ⁺ the share of positives among what is drawn as negatives, the loss is
    ``-log(exp(s⁺/t) / (exp(s⁺/t) + Ng))`` where

    - form ``source``: ``Ng = max((Σ - τ⁺ N exp(s⁺/t)) / (1 - τ⁺), N exp(-1/t))``; it becomes InfoNCE as τ⁺ goes to 0;
    - form ``paraphrase``: ``Ng = N max((Σ - τ⁺ exp(s⁺/t)) / (N (1 - τ⁺)), 1e-8)``, as the ANMI 2.1 report has it: the
      positive's term lacks the factor N, so that far less is subtracted.

    Parameters
    ----------
    temperature
        The module that gives t.
    tau_plus
        τ⁺ in [0, 1), or the module that gives it.
    form
        ``source`` or ``paraphrase``.

    References
    ----------
    Chuang, Robinson, Lin, Torralba and Jegelka, "Debiased Contrastive Learning", NeurIPS 2020, equation 8.

    Examples
    --------
    >>> from anmi.training.temperature import Temperature
    >>> loss = DebiasedContrastive(Temperature(1.0), tau_plus=0.0)
    >>> [round(x, 4) for x in loss(torch.tensor([0.5]), torch.tensor([[0.5]]), torch.zeros(1, 1)).tolist()]
    [0.6931]
    """

    def __init__(
        self, temperature: nn.Module, tau_plus: float | TauPlus = 0.1, form: Literal["source", "paraphrase"] = "source"
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.tau_plus = tau_plus if isinstance(tau_plus, TauPlus) else TauPlus(tau_plus)
        self.form = form

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row; shapes and special cases as in :class:`WeightedInfoNCE`."""
        positive_t, t = self.temperature(facts)
        positive = (positive_similarity[:, None] / positive_t)[:, 0]
        if negative_similarity.shape[1] == 0:
            return positive * 0.0
        similarity, safe, lonely = without_lonely_rows(negative_similarity, log_weights)
        log_count = torch.logsumexp(safe, dim=1)
        log_sum = self._log_sum(similarity, safe, log_count, t)
        result = functional.softplus(self._log_negative(positive, log_sum, log_count, t) - positive)
        return (result + self.tau_plus.penalty(log_count.detach().exp())).masked_fill(lonely, 0.0)

    def report(self) -> dict[str, float]:
        """Return τ⁺ where it is learned."""
        return self.tau_plus.report()

    def _log_sum(self, similarity: Tensor, log_weights: Tensor, log_count: Tensor, t: Tensor) -> Tensor:
        """Return log Σ, [B]."""
        return torch.logsumexp(weighted_logits(similarity, log_weights, t), dim=1)

    def _log_negative(self, positive: Tensor, log_sum: Tensor, log_count: Tensor, t: Tensor) -> Tensor:
        source = self.form == "source"
        log_share, log_rest = self.tau_plus()
        floor = log_count + (-1.0 / t.reshape(-1) if source else math.log(_SMALLEST_MEAN))
        expected = log_share + positive + (log_count if source else 0.0)
        # log(exp(a) - exp(b)) = a + log(1 - exp(b - a)) for b < a; elsewhere the difference is not positive and the
        # floor holds. The double `where` keeps the branch not taken free of NaN gradients.
        above = expected < log_sum
        exponent = torch.where(above, expected - log_sum, torch.full_like(log_sum, -1.0))
        difference = log_sum + torch.log(-torch.expm1(exponent)) - log_rest
        return torch.where(above, torch.maximum(difference, floor), floor)
