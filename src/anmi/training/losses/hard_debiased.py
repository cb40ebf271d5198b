"""Debiased contrastive loss in which harder negatives weigh more."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from anmi.training.losses.debiased import DebiasedContrastive
from anmi.training.losses.logspace import weighted_logits
from anmi.training.losses.tau_plus import TauPlus


class HardDebiasedContrastive(DebiasedContrastive):
    """:class:`DebiasedContrastive` with ``Σ = Σᵢ wᵢ rᵢ exp(sᵢ/t)``, ``rᵢ = exp(β sᵢ/t) / mean(exp(β s/t))`` (HCL).

    The mean is weighted as the sum is. As in the released code, the exponent of r is divided by the same temperature
    as the similarities, and r has a gradient. That code runs at t = 0.5; at t = 0.07 the weights with β = 1 differ by
    a factor of exp(14) over a similarity of 1, and little but the hardest negative is left.

    Parameters
    ----------
    temperature, tau_plus, form
        As of :class:`DebiasedContrastive`.
    beta
        β from 0, which is the debiased loss, on.

    References
    ----------
    Robinson, Chuang, Sra and Jegelka, "Contrastive Learning with Hard Negative Samples", ICLR 2021, equation 4.

    Examples
    --------
    >>> from anmi.training.temperature import Temperature
    >>> block = torch.tensor([0.5]), torch.tensor([[0.7, 0.1]]), torch.zeros(1, 2)
    >>> easy, hard = (HardDebiasedContrastive(Temperature(0.5), 0.1, beta=beta)(*block).item() for beta in (0.0, 1.0))
    >>> easy < hard
    True
    """

    def __init__(
        self,
        temperature: nn.Module,
        tau_plus: float | TauPlus = 0.1,
        form: Literal["source", "paraphrase"] = "source",
        beta: float = 1.0,
    ) -> None:
        super().__init__(temperature, tau_plus, form)
        if beta < 0:
            raise ValueError(f"beta {beta} is negative")
        self.beta = beta

    def _log_sum(self, similarity: Tensor, log_weights: Tensor, log_count: Tensor, t: Tensor) -> Tensor:
        def log_sum(factor: float) -> Tensor:
            return torch.logsumexp(weighted_logits(factor * similarity, log_weights, t), dim=1)

        return log_sum(1.0 + self.beta) - log_sum(self.beta) + log_count
