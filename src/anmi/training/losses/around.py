"""Losses around others: hardness-adaptive (methods §4), or learning the draw (methods §3.5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from anmi.errors import AnmiError
from anmi.selection.steps.samplers import SimAns
from anmi.training.batch import Row
from anmi.training.losses.common import NOTHING_KNOWN, Around, Facts, Loss
from anmi.training.parts import HansOptions, SimAnsDraw

# The judgment that says where in its row's pool a drawn negative stands.
SLOT: Final = "slot"
# Temperature of the softmax: the lower, the nearer to the draw and the noisier the gradient;
# customary.
RELAXATION: Final = 0.5
# Stands for the key of what cannot be drawn; −∞ would make softmax of an empty row 0/0.
_NEVER: Final = -1e9
_EPSILON: Final = 1e-20


class LearnableSimAns(nn.Module):
    """Draws negatives with a chance in proportion to exp(−a(s − s⁺ − b)²/v), a and b learned.

    By rank the chance is proportional to exp(−a·|rank − b·rank⁺|); ranks count from 0 there, as in
    the step ``simans``, and are given from 1 on.

    The draw of n without replacement is that of the Gumbel top-k trick, each ``argmax`` relaxed to
    a softmax (Jang et al. 2017; for several draws Xie and Ermon 2019). As the temperature falls to
    0 it becomes the exact draw that the step ``simans`` makes from the same uniform numbers.

    The sharpness ``a`` stays above 0, being the softplus of a free parameter; ``b`` is the peak's
    distance from the positive's score, or its multiple of the positive's rank. By score both start
    where the step ``simans`` has them; by rank the free parameters do, and b is a softplus as well,
    as in the ANMI 2.1 report.

    Parameters
    ----------
    form
        ``score`` or ``rank``.

    Examples
    --------
    >>> sampler = LearnableSimAns("rank")
    >>> round(sampler.a.item(), 4), round(sampler.b.item(), 4)
    (1.3133, 1.7014)
    """

    variance: Tensor

    def __init__(self, form: Literal["score", "rank"] = "score") -> None:
        super().__init__()
        a, b = SimAns(form=form).constants
        # By score the inverse of softplus, written so that a large a does not overflow.
        start = a if form == "rank" else a + math.log(-math.expm1(-a))
        self.free_a = nn.Parameter(torch.tensor(start))
        self.free_b = nn.Parameter(torch.tensor(b))
        # v, that of the gaps; for scores only.
        self.register_buffer("variance", torch.tensor(1.0))
        self.form = form

    @property
    def a(self) -> Tensor:
        """The sharpness, above 0, a tensor without dimensions."""
        return nn.functional.softplus(self.free_a)

    @property
    def b(self) -> Tensor:
        """Where the peak is, a tensor without dimensions."""
        return nn.functional.softplus(self.free_b) if self.form == "rank" else self.free_b

    def log_chances(self, scores: Tensor, positive: Tensor, usable: Tensor) -> Tensor:
        """Return the log-probability of each candidate to be the first drawn.

        Parameters
        ----------
        scores
            Of the candidates, [Q, M], or their ranks.
        positive
            Score, or rank, of each row's own positive, [Q, 1]. A rank of NaN counts as behind all
            of its row.
        usable
            True where a candidate may be drawn, [Q, M].

        Returns
        -------
        torch.Tensor
            [Q, M]; a very large negative number where it may not.
        """
        if self.form == "rank":
            behind = torch.where(usable, scores, 0.0).amax(dim=1, keepdim=True)
            positive_rank = torch.where(torch.isnan(positive), behind, positive - 1)
            ranks = torch.where(usable, scores - 1, 0.0)
            energy = -self.a * (ranks - self.b * positive_rank).abs()
        else:
            gaps = torch.where(usable, scores - positive, 0.0)
            energy = -self.a / self.variance * (gaps - self.b) ** 2
        return torch.log_softmax(torch.where(usable, energy, _NEVER), dim=1)

    def keys(self, scores: Tensor, positive: Tensor, usable: Tensor, uniform: Tensor) -> Tensor:
        """Return keys whose n largest are n draws without replacement, [Q, M].

        ``uniform`` has a number from [0, 1) for each candidate, [Q, M]; the others are as of
        :meth:`log_chances`.
        """
        gumbel = -torch.log(-torch.log(uniform.clamp(2.0**-54, 1 - 2.0**-24).to(scores.dtype)))
        return torch.where(usable, self.log_chances(scores, positive, usable) + gumbel, _NEVER)

    @staticmethod
    def relaxed(keys: Tensor, usable: Tensor, count: int) -> Tensor:
        """Return how far each candidate is drawn.

        Parameters
        ----------
        keys, usable
            From :meth:`keys`, and of :meth:`log_chances`.
        count
            Candidates drawn per row, as far as there are so many.

        Returns
        -------
        torch.Tensor
            [Q, M], from 0 on, a row's sum being the number of its draws; weights of negatives in a
            loss.
        """
        number = usable.sum(dim=1, keepdim=True)
        drawn = torch.zeros_like(keys)
        last = torch.zeros_like(keys)
        for place in range(count):
            # What has been drawn is out of the next draw, by as much as it has been.
            keys = keys + torch.log((1 - last).clamp(min=_EPSILON))
            last = torch.softmax(keys / RELAXATION, dim=1) * usable
            drawn = drawn + last * (place < number)
        return drawn


class DrawnBySimAns(Around):
    """Any loss, whose gradient reaches the a and b by which its negatives were drawn.

    A drawn negative counts as it is, so that the loss is that of the draw; its gradient by the
    weight goes on to how far a softmax would have drawn it (straight-through Gumbel-softmax, Jang
    et al. 2017). What was not drawn is not encoded, and has no say.

    A loss falls with the weight of its hardest negatives. Learned by it, as the ANMI 2.1 report has
    it, the draw tends to negatives that are easier; nothing here holds it.

    Parameters
    ----------
    loss
        Any loss of this package whose negatives have weights.
    options
        Of the draw; :meth:`prepare` takes the variance of the gaps to the positive of the judgment
        that they name.

    References
    ----------
    Zhou et al., "SimANS", EMNLP 2022, arXiv 2210.11773; a and b learned as in the ANMI 2.1 report
    (methods §3.5).
    """

    def __init__(self, loss: Loss, options: SimAnsDraw) -> None:
        super().__init__(loss)
        self.drawing = LearnableSimAns(options.form)
        self._column = options.reads[0]
        # Of the batch in hand, [B, places of the pool]; the sampler leaves it here.
        self.relaxed: Tensor | None = None

    def prepare(self, rows: Sequence[Row]) -> None:
        """Take the variance of the gaps from all rows, and let the loss inside see them."""
        if self.drawing.form == "score" and rows:
            judged = [row.judged[self._column] for row in rows]
            gaps = np.concatenate([np.subtract(values, positive) for positive, values in judged])
            gaps = np.sort(gaps[np.isfinite(gaps)])
            if len(gaps) and gaps.var() > 1e-12:
                self.drawing.variance.fill_(float(gaps.var()))
        super().prepare(rows)

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`."""
        slot = facts.judged.get(SLOT)
        if slot is not None and self.relaxed is not None:
            drawn = torch.isfinite(slot)
            soft = self.relaxed.to(log_weights.dtype).gather(1, slot.nan_to_num(0.0).long())
            # A weight of 1 with the gradient of the softmax.
            log_weights = log_weights + torch.where(drawn, torch.log1p(soft - soft.detach()), 0.0)
        result: Tensor = self.loss(positive, negatives, log_weights, facts)
        return result

    def report(self) -> dict[str, Tensor]:
        """Return the loss's numbers, and a and b."""
        numbers = {
            "simans_a": self.drawing.a.detach().clone(),
            "simans_b": self.drawing.b.detach().clone(),
        }
        return super().report() | numbers


# Of the predictor's squared error; the report's.
PREDICTOR_WEIGHT: Final = 0.1


class HardnessPredictor(nn.Module):
    """Hardness from an embedding: LayerNorm → Linear(d, max(32, d/4)) → ReLU → Linear(1) → sigmoid.

    Parameters
    ----------
    dimensions
        d.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        hidden = max(32, dimensions // 4)
        self.network = nn.Sequential(
            nn.LayerNorm(dimensions),
            nn.Linear(dimensions, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
            nn.Sigmoid(),
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
        The factor, which is on, or this would be the base itself, and whether it is the
        temperature, whatever the base.
    """

    def __init__(self, base: nn.Module, options: HansOptions) -> None:
        super().__init__()
        self.base = base
        self._factor = options.temperature
        self._absolute = options.temperature_is == "absolute"
        self._last = torch.tensor(math.nan)

    def forward(self, facts: Facts = NOTHING_KNOWN) -> tuple[Tensor, Tensor]:
        """Return the positive's and the negatives' temperature of every query, [B, 1] each."""
        assert facts.hardness is not None
        factor = self._factor.at(facts.hardness)[:, None]
        if self._absolute:
            self._last = factor.detach().mean()
            return factor, factor
        positive, negative = self.base(facts)
        return positive * factor, negative * factor

    def report(self) -> dict[str, Tensor]:
        """Return the base's report, before the factor; the last batch's mean if absolute."""
        if self._absolute:
            return {"temperature": self._last}
        report: dict[str, Tensor] = self.base.report()  # type: ignore[operator]
        return report


class HardnessAdaptive(Around):
    """Any loss, adapted to the hardness h of each query (methods §4).

    The loss of a row is ``w(h) · L(s⁺ ∓ m(h)·t, s, t·f(h)) + 0.1 · (ĥ − heuristic)²``: in L the
    margin m stands on the positive's logit s⁺/t. As published it stands on s⁺, and f(h) takes the
    place of t·f(h). Here h is the predicted hardness ĥ, always detached in w, m and f: otherwise
    the loss could be lowered by calling hard queries easy.

    Parameters
    ----------
    loss
        Any loss of this package; one without a temperature cannot have it adapted, nor a margin on
        its logits.
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
                f"{type(loss).__name__} has no temperature, so hardness can adapt neither it nor a"
                " margin on its logits; set hardness.hans.temperature and hardness.hans.margin to"
                " the direction off"
            )
        if options.temperature.on:
            loss.temperature = ScaledTemperature(cast(nn.Module, temperature), options)
        self.predictor = HardnessPredictor(dimensions)
        self._options = options
        self._report: dict[str, Tensor] = {}

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`."""
        assert facts.query is not None and facts.hardness is not None
        options = self._options
        target = facts.hardness.to(facts.query.dtype)
        predicted = self.predictor(facts.query.detach() if options.detached else facts.query)
        hardness = predicted.detach()
        facts = replace(facts, hardness=hardness)
        if options.margin.on:
            margin = options.margin.at(hardness)
            if options.margin_on == "logit":
                # Divided by t in the loss, it stands on the logit as it is.
                t: Tensor = self.temperature(facts)[0]
                margin = margin * t.reshape(-1)
            positive = positive + (margin if options.margin_is == "added" else -margin)
        losses: Tensor = self.loss(positive, negatives, log_weights, facts)
        error = (predicted - target).square()
        self._report = {
            "hardness": hardness.mean(),
            "hardness_error": error.detach().mean(),
        }
        if options.weight.on:
            losses = losses * options.weight.at(hardness)
        return losses + PREDICTOR_WEIGHT * error

    def report(self) -> dict[str, Tensor]:
        """Return the loss's numbers, the last batch's mean hardness and the predictor's error."""
        return super().report() | self._report
