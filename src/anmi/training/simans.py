"""SimANS with a and b learned, by a relaxation of the draw (methods §3.5)."""

from __future__ import annotations

import math
from typing import Final, Literal

import torch
from torch import Tensor, nn

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

    Parameters
    ----------
    a
        Start of the sharpness, above 0; it stays there, being the softplus of a free parameter.
    b
        Start of the peak's distance from the positive's score, or of its multiple of the positive's rank.
    variance
        v, that of the gaps; for scores only.
    form
        ``score`` or ``rank``.

    Examples
    --------
    >>> sampler = LearnableSimAns(a=2.0, b=-0.1)
    >>> round(sampler.a.item(), 4), round(sampler.b.item(), 4)
    (2.0, -0.1)
    """

    variance: Tensor

    def __init__(
        self, a: float = 0.5, b: float = 0.0, variance: float = 1.0, form: Literal["score", "rank"] = "score"
    ) -> None:
        super().__init__()
        if not a > 0:
            raise ValueError(f"a must be above 0, not {a}")
        # The inverse of softplus, written so that a large a does not overflow.
        self.free_a = nn.Parameter(torch.tensor(a + math.log(-math.expm1(-a))))
        self.b = nn.Parameter(torch.tensor(b))
        self.register_buffer("variance", torch.tensor(variance))
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
        """Return keys whose n largest are n draws without replacement, [Q, M]; arguments as of :meth:`forward`."""
        gumbel = -torch.log(-torch.log(uniform.clamp(2.0**-54, 1 - 2.0**-24).to(scores.dtype)))
        return torch.where(usable, self.log_chances(scores, positive, usable) + gumbel, _NEVER)

    def forward(
        self, scores: Tensor, positive: Tensor, usable: Tensor, uniform: Tensor, count: int, temperature: float = 0.5
    ) -> Tensor:
        """Return how far each candidate is drawn.

        Parameters
        ----------
        scores, positive, usable
            As of :meth:`log_chances`.
        uniform
            A number from [0, 1) for each candidate, [Q, M], such as those of ``anmi.seeds.uniform``.
        count
            Candidates drawn per row, as far as there are so many.
        temperature
            Of the relaxation, above 0: the lower, the nearer to the exact draw and the noisier the gradient.

        Returns
        -------
        torch.Tensor
            [Q, M], from 0 on, a row's sum being the number of its draws; weights of negatives in a loss.
        """
        return self.relaxed(self.keys(scores, positive, usable, uniform), usable, count, temperature)

    @staticmethod
    def relaxed(keys: Tensor, usable: Tensor, count: int, temperature: float) -> Tensor:
        """Return what :meth:`forward` does, from the keys of the draw."""
        number = usable.sum(dim=1, keepdim=True)
        drawn = torch.zeros_like(keys)
        last = torch.zeros_like(keys)
        for place in range(count):
            # What has been drawn is out of the next draw, by as much as it has been.
            keys = keys + torch.log((1 - last).clamp(min=_LEAST))
            last = torch.softmax(keys / temperature, dim=1) * usable
            drawn = drawn + last * (place < number)
        return drawn
