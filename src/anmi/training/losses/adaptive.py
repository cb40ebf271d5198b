"""Training that adapts to the hardness of queries (HANS): weight, temperature and margin of any loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from torch import Tensor, nn

from anmi.errors import AnmiError
from anmi.training.losses.common import NOTHING_KNOWN, Around, Facts, Loss
from anmi.training.parts import HansOptions

# Of the predictor's squared error; the report's.
PREDICTOR_WEIGHT: Final = 0.1


class HardnessPredictor(nn.Module):
    """Hardness from a query's embedding: LayerNorm → Linear(d, max(32, d/4)) → ReLU → Linear(1) → sigmoid.

    Parameters
    ----------
    dimensions
        d.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        hidden = max(32, dimensions // 4)
        self.network = nn.Sequential(
            nn.LayerNorm(dimensions), nn.Linear(dimensions, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Sigmoid()
        )

    def forward(self, query: Tensor) -> Tensor:
        """Return the hardness of [B, d] embeddings, [B] in (0, 1)."""
        return cast(Tensor, self.network(query))[:, 0]


class ScaledTemperature(nn.Module):
    """A temperature times a factor that goes by the hardness of each query, or that number itself.

    Parameters
    ----------
    base
        The temperature.
    options
        The factor, which is on, or this would be the base itself, and whether it is the temperature, whatever the base.
    """

    def __init__(self, base: nn.Module, options: HansOptions) -> None:
        super().__init__()
        self.base, self._factor, self._absolute = base, options.temperature, options.temperature_is == "absolute"
        self._last = float("nan")

    def forward(self, facts: Facts = NOTHING_KNOWN) -> tuple[Tensor, Tensor]:
        """Return the positive's and the negatives' temperature of every query, [B, 1] each."""
        assert facts.hardness is not None
        factor = self._factor.at(facts.hardness)[:, None]
        if self._absolute:
            self._last = float(factor.detach().mean())
            return factor, factor
        positive, negative = self.base(facts)
        return positive * factor, negative * factor

    def report(self) -> dict[str, float]:
        """Return what the base says of itself, before the factor; the mean of the last batch if that is absolute."""
        if self._absolute:
            return {"temperature": self._last}
        report: dict[str, float] = self.base.report()  # type: ignore[operator]
        return report


class HardnessAdaptive(Around):
    """Any loss, adapted to the hardness h of each query (methods §4).

    The loss of a row is ``w(h) · L(s⁺ ∓ m(h)·t, s, t·f(h)) + 0.1 · (ĥ − heuristic)²``: in L the margin m stands on the
    positive's logit s⁺/t. As published it stands on s⁺, and f(h) takes the place of t·f(h). Here h is the predicted
    hardness ĥ, always detached in w, m and f: otherwise the loss could be lowered by calling hard queries easy.

    Parameters
    ----------
    loss
        Any loss of this package; one without a temperature cannot have it adapted, nor a margin on its logits.
    options
        Directions and ranges.
    dimensions
        Of the embeddings.

    References
    ----------
    The HANS report as told in methods §4; its formulas and its prose contradict each other, which
    :class:`~anmi.training.parts.HansOptions` tells about each part.
    """

    def __init__(self, loss: Loss, options: HansOptions, dimensions: int) -> None:
        super().__init__(loss)
        temperature = getattr(loss, "temperature", None)
        if temperature is None and (options.temperature.on or options.margin.on):
            raise AnmiError(
                f"{type(loss).__name__} has no temperature, so hardness can adapt neither it nor a margin on its "
                "logits; set hardness.hans.temperature and hardness.hans.margin to the direction off"
            )
        if options.temperature.on:
            loss.temperature = ScaledTemperature(cast(nn.Module, temperature), options)
        self.predictor = HardnessPredictor(dimensions)
        self._options = options
        self._report: dict[str, float] = {}

    def forward(self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`."""
        assert facts.query is not None and facts.hardness is not None
        p = self._options
        target = facts.hardness.to(facts.query.dtype)
        predicted = self.predictor(facts.query.detach() if p.detached else facts.query)
        hardness = predicted.detach()
        facts = replace(facts, hardness=hardness)
        if p.margin.on:
            margin = p.margin.at(hardness)
            if p.margin_on == "logit":
                # Divided by t in the loss, it stands on the logit as it is.
                t: Tensor = self.temperature(facts)[0]
                margin = margin * t.reshape(-1)
            positive = positive + (margin if p.margin_is == "added" else -margin)
        losses: Tensor = self.loss(positive, negatives, log_weights, facts)
        error = (predicted - target).square()
        self._report = {"hardness": float(hardness.mean()), "hardness_error": float(error.detach().mean())}
        if p.weight.on:
            losses = losses * p.weight.at(hardness)
        return losses + PREDICTOR_WEIGHT * error

    def report(self) -> dict[str, float]:
        """Return the loss's numbers, the mean hardness the last step adapted to and the predictor's squared error."""
        return super().report() | self._report
