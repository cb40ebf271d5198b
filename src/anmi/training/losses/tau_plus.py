"""The share of positives among what is drawn as negatives, fixed or learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class TauPlus(nn.Module):
    """τ⁺ in [0, 1), as its logarithm and that of 1 - τ⁺.

    Learned alone it is ill-posed: with N negatives the derivative of the loss has the sign of
    Σ exp(sᵢ/t)/N - exp(s⁺/t), so once the positive leads, a larger τ⁺ always makes the loss smaller, and it grows until
    the loss lies at its clamp, where nothing has a gradient any more and nothing brings it back. A Beta prior holds it:
    with a start value m and strength k, a row with N negatives pays k N KL(m ‖ τ⁺), the negative log density of
    Beta(kNm, kN(1 - m)) over the logit, less its minimum. It reads like k N judged negatives of which the share m was
    relevant.

    The scale N is that of what it has to hold: the loss pulls at the logit with at most N τ⁺, the prior with
    k N (τ⁺ - m). So for k > 1 τ⁺ stays below m k / (k - 1) whatever the encoder does; for k ≤ 1 nothing is promised.

    Parameters
    ----------
    initial
        Start value m, in [0, 1); above 0 to be learned.
    learnable
        Learn its logit.
    prior_strength
        k; 0 is no prior.

    Examples
    --------
    >>> share = TauPlus(0.25, learnable=True, prior_strength=2.0)
    >>> [round(x.exp().item(), 2) for x in share()], share.penalty(torch.tensor([8.0])).tolist()
    ([0.25, 0.75], [0.0])
    """

    def __init__(self, initial: float, *, learnable: bool = False, prior_strength: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= initial < 1.0:
            raise ValueError(f"tau_plus {initial} lies outside [0, 1)")
        if learnable and initial == 0.0:
            raise ValueError("a learned tau_plus must start above 0, since the logit of 0 is infinite")
        self.initial = initial
        self.learnable = learnable
        self.prior_strength = prior_strength
        if learnable:
            self.logit = nn.Parameter(torch.tensor(_logit(initial)))

    def forward(self) -> tuple[Tensor | float, Tensor | float]:
        """Return log τ⁺ and log(1 - τ⁺), each a number or a tensor without dimensions."""
        if self.learnable:
            return functional.logsigmoid(self.logit), functional.logsigmoid(-self.logit)
        return (math.log(self.initial) if self.initial else -math.inf), math.log1p(-self.initial)

    def penalty(self, count: Tensor) -> Tensor:
        """Return what the prior adds to the loss of rows with ``count`` negatives (the sum of their weights), [B]."""
        if not self.learnable or self.prior_strength == 0.0:
            return torch.zeros_like(count)
        # KL(m ‖ τ) by the distance of the logits: exactly 0 at the start, without cancellation near it.
        distance = self.logit - _logit(self.initial)
        divergence = torch.log1p(self.initial * torch.expm1(distance.clamp(max=80.0))) - self.initial * distance
        return self.prior_strength * divergence * count

    def report(self) -> dict[str, float]:
        """Return τ⁺ where it is learned."""
        return {"tau_plus": float(torch.sigmoid(self.logit.detach()))} if self.learnable else {}


def _logit(share: float) -> float:
    # As the parameter holds it, so that the prior is exactly 0 at the start.
    return float(torch.tensor(math.log(share) - math.log1p(-share)))
