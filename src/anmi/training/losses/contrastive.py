"""Contrastive losses, whose negatives are weighted by their recipe, and the triplet loss."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.losses.common import (
    NOTHING_KNOWN,
    Facts,
    Loss,
    weighted_logits,
    without_lonely_rows,
)
from anmi.training.parts import DebiasedOptions, TripletOptions

_SMALLEST_MEAN: Final = 1e-8


class WeightedInfoNCE(Loss):
    """Softmax cross-entropy of the positive against weighted negatives.

    ``-s⁺/t + log(exp(s⁺/t) + Σ wᵢ exp(sᵢ/t))``: the weights stand inside the denominator, so a
    negative of weight 0 is not there and one of weight 2 counts like two.

    References
    ----------
    van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding",
    2018.

    Examples
    --------
    >>> from anmi.training.losses.temperature import Temperature
    >>> loss = WeightedInfoNCE(Temperature(1.0))
    >>> round(loss(torch.tensor([0.5]), torch.tensor([[0.5]]), torch.zeros(1, 1)).item(), 4)
    0.6931
    """

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row.

        Parameters
        ----------
        positive
            Shape [B].
        negatives
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
        return infonce(positive, negatives, log_weights, self.temperature(facts))


def infonce(
    positive: Tensor, negatives: Tensor, log_weights: Tensor, temperatures: tuple[Tensor, Tensor]
) -> Tensor:
    """Return what :class:`WeightedInfoNCE` does, by the positive's and negatives' temperature."""
    positive_logits = positive[:, None] / temperatures[0]
    negative_logits = weighted_logits(negatives, log_weights, temperatures[1])
    logits = torch.cat([positive_logits, negative_logits], dim=1)
    return torch.logsumexp(logits, dim=1) - positive_logits[:, 0]


class TauPlus(nn.Module):
    """τ⁺ in [0, 1), as its logarithm and that of 1 - τ⁺.

    Learned alone it is ill-posed: with N negatives the derivative of the loss has the sign of Σ
    exp(sᵢ/t)/N - exp(s⁺/t), so once the positive leads, a larger τ⁺ always makes the loss smaller,
    and it grows until the loss lies at its clamp, where nothing has a gradient any more and nothing
    brings it back. A Beta prior holds it: with a start value m and strength k, a row with N
    negatives pays k N KL(m ‖ τ⁺), the negative log density of Beta(kNm, kN(1 - m)) over the logit,
    less its minimum. It reads like k N judged negatives of which the share m was relevant.

    The scale N is that of what it has to hold: the loss pulls at the logit with at most N τ⁺, the
    prior with k N (τ⁺ - m). So for k > 1 τ⁺ stays below m k / (k - 1) whatever the encoder does;
    for k ≤ 1 nothing is promised.

    Parameters
    ----------
    options
        With the start value m as ``tau_plus``, whether its logit is ``learned``, and k as
        ``prior_strength``, 0 for no prior.

    Raises
    ------
    AnmiError
        It is to be estimated, or to be learned and starts at 0.

    Examples
    --------
    >>> share = TauPlus(DebiasedOptions(tau_plus=0.25, learned=True, prior_strength=2.0))
    >>> [round(x.exp().item(), 2) for x in share()], share.penalty(torch.tensor([8.0])).tolist()
    ([0.25, 0.75], [0.0])
    """

    def __init__(self, options: DebiasedOptions) -> None:
        super().__init__()
        if not isinstance(options.tau_plus, float):
            raise AnmiError(
                "the debiased loss needs tau_plus as a number: no corpus is at hand to estimate it"
                " from"
            )
        if options.learned and options.tau_plus == 0.0:
            raise AnmiError(
                "tau_plus is to be learned and starts at 0 (given, or estimated where no negative"
                " was judged relevant), where its logit is infinite: give it a small number, or do"
                " not learn it"
            )
        self.initial = options.tau_plus
        self.learnable = options.learned
        self.prior_strength = options.prior_strength
        if self.learnable:
            self.logit = nn.Parameter(torch.tensor(_logit(self.initial)))

    def forward(self) -> tuple[Tensor | float, Tensor | float]:
        """Return log τ⁺ and log(1 - τ⁺), each a number or a tensor without dimensions."""
        if self.learnable:
            return functional.logsigmoid(self.logit), functional.logsigmoid(-self.logit)
        return (math.log(self.initial) if self.initial else -math.inf), math.log1p(-self.initial)

    def penalty(self, count: Tensor) -> Tensor:
        """Return what the prior adds to a row's loss, by the sum of its negatives' weights, [B]."""
        if not self.learnable or self.prior_strength == 0.0:
            return torch.zeros_like(count)
        # KL(m ‖ τ) by the distance of the logits: exactly 0 at the start, without cancellation near
        # it.
        distance = self.logit - _logit(self.initial)
        growth = torch.expm1(distance.clamp(max=80.0))
        divergence = torch.log1p(self.initial * growth) - self.initial * distance
        return self.prior_strength * divergence * count

    def report(self) -> dict[str, Tensor]:
        """Return τ⁺ where it is learned."""
        return {"tau_plus": torch.sigmoid(self.logit.detach())} if self.learnable else {}


def _logit(share: float) -> float:
    # As the parameter holds it, so that the prior is exactly 0 at the start.
    return float(torch.tensor(math.log(share) - math.log1p(-share)))


class DebiasedContrastive(Loss):
    """Contrastive loss whose negative term has the expected share of false negatives subtracted.

    With Σ = Σᵢ wᵢ exp(sᵢ/t), N = Σᵢ wᵢ and τ⁺ the share of positives among what is drawn as
    negatives, the loss is ``-log(exp(s⁺/t) / (exp(s⁺/t) + Ng))`` where

    - form ``source``: ``Ng = max((Σ - τ⁺ N exp(s⁺/t)) / (1 - τ⁺), N exp(-1/t))``; it becomes
      InfoNCE as τ⁺ goes to 0;
    - form ``paraphrase``: ``Ng = N max((Σ - τ⁺ exp(s⁺/t)) / (N (1 - τ⁺)), 1e-8)``, as the ANMI 2.1
      report has it: the positive's term lacks the factor N, so that far less is subtracted.

    References
    ----------
    Chuang, Robinson, Lin, Torralba and Jegelka, "Debiased Contrastive Learning", NeurIPS 2020,
    equation 8.

    Examples
    --------
    >>> from anmi.training.losses.temperature import Temperature
    >>> loss = DebiasedContrastive(Temperature(1.0), DebiasedOptions(tau_plus=0.0))
    >>> round(loss(torch.tensor([0.5]), torch.tensor([[0.5]]), torch.zeros(1, 1)).item(), 4)
    0.6931
    """

    def __init__(
        self, temperature: nn.Module, options: DebiasedOptions, dimensions: int = 0
    ) -> None:
        super().__init__(temperature, options, dimensions)
        self.tau_plus = TauPlus(options)

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row; shapes and special cases as in :class:`WeightedInfoNCE`."""
        positive_t, t = self.temperature(facts)
        positive = (positive[:, None] / positive_t)[:, 0]
        if negatives.shape[1] == 0:
            return positive * 0.0
        similarity, safe, lonely = without_lonely_rows(negatives, log_weights)
        log_count = torch.logsumexp(safe, dim=1)
        log_sum = torch.logsumexp(weighted_logits(similarity, safe, t), dim=1)
        result = functional.softplus(self._log_negative(positive, log_sum, log_count, t) - positive)
        return (result + self.tau_plus.penalty(log_count.detach().exp())).masked_fill(lonely, 0.0)

    def report(self) -> dict[str, Tensor]:
        """Return τ⁺ where it is learned."""
        return self.tau_plus.report()

    def _log_negative(
        self, positive: Tensor, log_sum: Tensor, log_count: Tensor, t: Tensor
    ) -> Tensor:
        source = self.options.form == "source"
        log_share, log_complement = self.tau_plus()
        floor = log_count + (-1.0 / t.reshape(-1) if source else math.log(_SMALLEST_MEAN))
        expected = log_share + positive + (log_count if source else 0.0)
        # log(exp(a) - exp(b)) = a + log(1 - exp(b - a)) for b < a; elsewhere the difference is not
        # positive and the floor holds. The double `where` keeps the branch not taken free of NaN
        # gradients.
        above = expected < log_sum
        exponent = torch.where(above, expected - log_sum, torch.full_like(log_sum, -1.0))
        difference = log_sum + torch.log(-torch.expm1(exponent)) - log_complement
        return torch.where(above, torch.maximum(difference, floor), floor)


class Triplet(Loss):
    """Every negative is to be a margin farther from the query than the positive, by cosines.

    ``Σ wᵢ max(0, d⁺ - dᵢ + m) / Σ wᵢ`` with d = 1 - s, so ``max(0, sᵢ - s⁺ + m)``. It is a mean
    over all negatives of the row, also those already far enough: among many in-batch negatives the
    few that still violate the margin weigh little. It has no temperature.

    References
    ----------
    Schroff, Kalenichenko and Philbin, "FaceNet", CVPR 2015, equation 2.

    Examples
    --------
    >>> loss = Triplet(None, TripletOptions(margin=0.2))
    >>> round(loss(torch.tensor([0.5]), torch.tensor([[0.5, 0.1]]), torch.zeros(1, 2)).item(), 4)
    0.1
    >>> float(loss.report()["margin_violation_rate"])
    0.5
    """

    def __init__(
        self, temperature: nn.Module | None, options: TripletOptions, dimensions: int = 0
    ) -> None:
        super().__init__(None, options)
        self._violations = torch.tensor(0.0)

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row; shapes and special cases as in :class:`WeightedInfoNCE`."""
        if negatives.shape[1] == 0:
            return positive * 0.0
        similarity, safe, lonely = without_lonely_rows(negatives, log_weights)
        removed = torch.isneginf(log_weights)
        short = similarity.masked_fill(removed, 0.0) - positive[:, None] + self.options.margin
        counted = ~removed
        self._violations = ((short > 0) & counted).sum().detach() / counted.sum().clamp(min=1)
        losses = (torch.softmax(safe, dim=1) * functional.relu(short)).sum(dim=1)
        return losses.masked_fill(lonely, 0.0)

    def report(self) -> dict[str, Tensor]:
        """Return the share of the last batch's negatives that were within the margin."""
        return {"margin_violation_rate": self._violations}
