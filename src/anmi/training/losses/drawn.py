"""SimANS with a and b learned (AdaptiveSimANS): a relaxation of the draw, and a loss around it (methods §3.5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from anmi.selection.steps.simans import SimAns
from anmi.training.batch import Row
from anmi.training.losses.common import NOTHING_KNOWN, Around, Facts, Loss
from anmi.training.parts import SimAnsDraw

# The judgment that says where in its row's pool a drawn negative stands.
SLOT: Final = "slot"
# Temperature of the softmax: the lower, the nearer to the draw and the noisier the gradient; customary.
RELAXATION: Final = 0.5
# Stands for the key of what cannot be drawn; −∞ would make softmax of an empty row 0/0.
_NEVER: Final = -1e9
_LEAST: Final = 1e-20


class LearnableSimAns(nn.Module):
    """Draws negatives with a chance proportional to exp(−a(s − s⁺ − b)²/v), with gradients for a and b.

    By rank the chance is proportional to exp(−a·|rank − b·rank⁺|); ranks count from 0 there, as in the step ``simans``,
    and are given from 1 on.

    The draw of n without replacement is that of the Gumbel top-k trick, each ``argmax`` relaxed to a softmax (Jang et
    al. 2017; for several draws Xie and Ermon 2019). As the temperature falls to 0 it becomes the exact draw that the
    step ``simans`` makes from the same uniform numbers.

    The sharpness ``a`` stays above 0, being the softplus of a free parameter; ``b`` is the peak's distance from the
    positive's score, or its multiple of the positive's rank. Both start where the step ``simans`` has them.

    Parameters
    ----------
    form
        ``score`` or ``rank``.

    Examples
    --------
    >>> sampler = LearnableSimAns("rank")
    >>> round(sampler.a.item(), 4), round(sampler.b.item(), 4)
    (1.0, 1.5)
    """

    variance: Tensor

    def __init__(self, form: Literal["score", "rank"] = "score") -> None:
        super().__init__()
        a, b = SimAns(form=form).constants
        # The inverse of softplus, written so that a large a does not overflow.
        self.free_a = nn.Parameter(torch.tensor(a + math.log(-math.expm1(-a))))
        self.b = nn.Parameter(torch.tensor(b))
        # v, that of the gaps; for scores only.
        self.register_buffer("variance", torch.tensor(1.0))
        self.form = form

    @property
    def a(self) -> Tensor:
        """The sharpness, above 0, a tensor without dimensions."""
        return nn.functional.softplus(self.free_a)

    def log_chances(self, scores: Tensor, positive: Tensor, usable: Tensor) -> Tensor:
        """Return the log-probability of each candidate to be the first drawn.

        Parameters
        ----------
        scores
            Of the candidates, [Q, M], or their ranks.
        positive
            Score, or rank, of each row's own positive, [Q, 1]. A rank of NaN counts as behind all of its row.
        usable
            True where a candidate may be drawn, [Q, M].

        Returns
        -------
        torch.Tensor
            [Q, M]; a very large negative number where it may not.
        """
        if self.form == "rank":
            behind = torch.where(usable, scores, 0.0).amax(dim=1, keepdim=True)
            own = torch.where(torch.isnan(positive), behind, positive - 1)
            energy = -self.a * (torch.where(usable, scores - 1, 0.0) - self.b * own).abs()
        else:
            gaps = torch.where(usable, scores - positive, 0.0)
            energy = -self.a / self.variance * (gaps - self.b) ** 2
        return torch.log_softmax(torch.where(usable, energy, _NEVER), dim=1)

    def keys(self, scores: Tensor, positive: Tensor, usable: Tensor, uniform: Tensor) -> Tensor:
        """Return keys whose n largest are n draws without replacement, [Q, M].

        ``uniform`` has a number from [0, 1) for each candidate, [Q, M]; the others are as of :meth:`log_chances`.
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
            [Q, M], from 0 on, a row's sum being the number of its draws; weights of negatives in a loss.
        """
        number = usable.sum(dim=1, keepdim=True)
        drawn = torch.zeros_like(keys)
        last = torch.zeros_like(keys)
        for place in range(count):
            # What has been drawn is out of the next draw, by as much as it has been.
            keys = keys + torch.log((1 - last).clamp(min=_LEAST))
            last = torch.softmax(keys / RELAXATION, dim=1) * usable
            drawn = drawn + last * (place < number)
        return drawn


class DrawnBySimAns(Around):
    """Any loss, whose gradient reaches the a and b by which its negatives were drawn.

    A drawn negative counts as it is, so that the loss is that of the draw; its gradient by the weight goes on to how
    far a softmax would have drawn it (straight-through Gumbel-softmax, Jang et al. 2017). What was not drawn is not
    encoded, and has no say.

    A loss falls with the weight of its hardest negatives. Learned by it, as the ANMI 2.1 report has it, the draw
    tends to negatives that are easier; nothing here holds it.

    Parameters
    ----------
    loss
        Any loss of this package whose negatives have weights.
    options
        Of the draw; :meth:`prepare` takes the variance of the gaps to the positive of the judgment that they name.

    References
    ----------
    Zhou et al., "SimANS", EMNLP 2022, arXiv 2210.11773; a and b learned as in the ANMI 2.1 report (methods §3.5).
    """

    def __init__(self, loss: Loss, options: SimAnsDraw) -> None:
        super().__init__(loss)
        self.drawing, self._column = LearnableSimAns(options.form), options.reads[0]
        # Of the batch in hand, [B, places of the pool]; the sampler leaves it here.
        self.relaxed: Tensor | None = None

    def prepare(self, rows: Sequence[Row]) -> None:
        """Take the variance of the gaps from all rows, and let the loss inside see them, if it wants to."""
        if self.drawing.form == "score" and rows:
            judged = [row.judged[self._column] for row in rows]
            gaps = np.concatenate([np.subtract(values, own) for own, values in judged])
            gaps = np.sort(gaps[np.isfinite(gaps)])
            if len(gaps) and gaps.var() > 1e-12:
                self.drawing.variance.fill_(float(gaps.var()))
        super().prepare(rows)

    def forward(self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`."""
        slot = facts.judged.get(SLOT)
        if slot is not None and self.relaxed is not None:
            drawn = torch.isfinite(slot)
            soft = self.relaxed.to(log_weights.dtype).gather(1, slot.nan_to_num(0.0).long())
            # A weight of 1 with the gradient of the softmax.
            log_weights = log_weights + torch.where(drawn, torch.log1p(soft - soft.detach()), 0.0)
        result: Tensor = self.loss(positive, negatives, log_weights, facts)
        return result

    def report(self) -> dict[str, float]:
        """Return the loss's numbers, and a and b."""
        numbers = {"simans_a": float(self.drawing.a.detach()), "simans_b": float(self.drawing.b.detach())}
        return super().report() | numbers
