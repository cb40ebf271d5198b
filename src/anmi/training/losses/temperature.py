"""The temperature of a contrastive loss, by which similarities are divided."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from anmi.training import parts
from anmi.training.losses.common import NOTHING_KNOWN, Facts
from anmi.training.parts import HIGHEST_ADAPTIVE, HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE


class Temperature(nn.Module):
    """A positive scalar t.

    Parameters
    ----------
    initial
        Start value, in [0.01, 1].
    learnable
        Learn log t by gradient descent. The parameter is called ``log_t``; the trainer gives it a
        learning rate of its own and no weight decay, which would pull t towards 1.

    Examples
    --------
    >>> [round(t.item(), 4) for t in Temperature(0.07)()]
    [0.07, 0.07]
    """

    log_t: Tensor

    def __init__(self, initial: float = 0.07, *, learnable: bool = False) -> None:
        super().__init__()
        start = torch.tensor(math.log(initial))
        self.learnable = learnable
        if learnable:
            self.log_t = nn.Parameter(start)
        else:
            self.register_buffer("log_t", start)

    def forward(self, facts: Facts = NOTHING_KNOWN) -> tuple[Tensor, Tensor]:
        """Return the positive's t and the negatives' t, here the same, within [0.01, 1].

        Returns
        -------
        tuple of torch.Tensor
            Each without dimensions, or [B, 1] where every query has its own.
        """
        if self.learnable:
            _project(self.log_t)
        t = self.log_t.exp()
        return t, t

    def report(self) -> dict[str, Tensor]:
        """Return what the log of a training says of it."""
        t = self.log_t.detach().exp().clamp(LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)
        return {"temperature": t}


class Dual(nn.Module):
    """Two learned temperatures, t⁺ of the positive and t⁻ of the negatives (methods §3.7).

    InfoNCE becomes ``-s⁺/t⁺ + log(exp(s⁺/t⁺) + Σ wᵢ exp(sᵢ/t⁻))``, with pᵢ the share of a term in
    the sum and p⁺ that of the positive. Its gradients are -(1 - p⁺)/t⁺ for s⁺ and pᵢ/t⁻ for sᵢ.
    They no longer cancel, so that all similarities of a query drift, up if t⁺ < t⁻.

    And the loss can fall without any learning: wherever s⁺ > 0 a smaller t⁺ makes it smaller,
    whether or not the positive leads, and so does a larger t⁻ where the sᵢ > 0. Left long enough
    the two drift apart until the loss is 0, and with it the encoder's gradient; a positive behind
    all its negatives then counts as found. It is here to be compared with: its loss does not
    compare with that of one temperature, and only dev tells whether it learns.

    Parameters
    ----------
    positive, negative
        Start values, in [0.01, 1].
    """

    def __init__(self, positive: float = 0.07, negative: float = 0.07) -> None:
        super().__init__()
        self.positive = Temperature(positive, learnable=True)
        self.negative = Temperature(negative, learnable=True)

    def forward(self, facts: Facts = NOTHING_KNOWN) -> tuple[Tensor, Tensor]:
        """Return the two, each without dimensions."""
        return self.positive()[0], self.negative()[1]

    def report(self) -> dict[str, Tensor]:
        """Return both."""
        return self.positive.report() | {
            "temperature_negative": self.negative.report()["temperature"]
        }


class Adaptive(nn.Module):
    """A temperature per query: base · 2 · sigmoid(offset), within [0.01, 0.5].

    A small network gives the offset. It sees detached embeddings: the temperature is to follow the
    query, not to move it. Where the clamp holds, only a gradient that leads back from it is let
    through.

    Parameters
    ----------
    dimensions
        Of an embedding.
    options
        Among them the base, where the network starts, its last layer being 0.
    """

    log_base: Tensor

    def __init__(self, dimensions: int, options: parts.AdaptiveTemperature) -> None:
        super().__init__()
        self._with_positive = options.sees == "query_and_positive"
        self.log_base = nn.Parameter(
            torch.tensor(math.log(options.base)), requires_grad=options.learned_base
        )
        last = nn.Linear(options.hidden, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        width = dimensions * (1 + self._with_positive)
        self.network = nn.Sequential(nn.Linear(width, options.hidden), nn.ReLU(), last)
        self._last = torch.tensor(options.base)

    def forward(self, facts: Facts = NOTHING_KNOWN) -> tuple[Tensor, Tensor]:
        """Return the queries' temperatures twice, [B, 1]."""
        assert facts.query is not None
        features = facts.query.detach()
        if self._with_positive:
            assert facts.document is not None and facts.positive_column is not None
            positives = facts.document.detach()[facts.positive_column]
            features = torch.cat([features, positives], dim=1)
        if self.log_base.requires_grad:
            _project(self.log_base, HIGHEST_ADAPTIVE)
        t = self.log_base.exp() * 2 * torch.sigmoid(self.network(features))
        t = _within(t, LOWEST_TEMPERATURE, HIGHEST_ADAPTIVE)
        self._last = t.detach().mean()
        return t, t

    def report(self) -> dict[str, Tensor]:
        """Return the mean of the last batch, and the base where it is learned."""
        base = (
            {"temperature_base": self.log_base.detach().exp()}
            if self.log_base.requires_grad
            else {}
        )
        return {"temperature": self._last} | base


def build_temperature(options: parts.TemperatureOptions, dimensions: int = 0) -> nn.Module:
    """Return the temperature that ``options`` describe; ``dimensions`` are those of embeddings."""
    match options:
        case parts.FixedTemperature():
            return Temperature(options.value)
        case parts.LearnableTemperature():
            return Temperature(options.initial, learnable=True)
        case parts.DualTemperature():
            return Dual(options.positive, options.negative)
    return Adaptive(dimensions, options)


def _within(t: Tensor, low: float, high: float) -> Tensor:
    """Clamp, but keep the gradient that leads back: a query without any would be stuck there."""
    if t.requires_grad:
        below = t.detach() < low
        above = t.detach() > high

        # A positive gradient lowers t when descended along.
        def let_back(gradient: Tensor) -> Tensor:
            leads_out = (below & (gradient > 0)) | (above & (gradient < 0))
            return gradient.masked_fill(leads_out, 0.0)

        t.register_hook(let_back)  # type: ignore[no-untyped-call]
    return t + (t.clamp(low, high) - t).detach()


def _project(log_t: Tensor, highest: float = HIGHEST_TEMPERATURE) -> None:
    """Keep the parameter within its bounds.

    Clamping only the value returned would leave a parameter that has stepped outside without
    gradient, and so stuck there for ever.
    """
    with torch.no_grad():
        log_t.clamp_(math.log(LOWEST_TEMPERATURE), math.log(highest))
