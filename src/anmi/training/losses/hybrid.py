"""InfoNCE beside a regression of Elo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from anmi.training.batch import Row
from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.checks import checked_share
from anmi.training.losses.infonce import infonce
from anmi.training.losses.judgments import all_judgments, judgments

# The scale of Elo: 1000 + 200 times the strength.
_CENTRE: Final = 1000.0
_UNIT: Final = 200.0


class Hybrid(nn.Module):
    """``α · InfoNCE + (1 - α) · MSE``, where a small head maps similarities to Elo (ANMI 2.0, methods §2).

    The error of a row is the mean over its own positive and its judged negatives; in-batch negatives, which nobody
    judged for this query, and padding have no part in it. Weights stand in InfoNCE; of the regression they only remove
    what weighs 0. Targets are standardised, since the squared error of raw Elo is of order 10⁶ and would swallow the
    contrastive term: by mean and deviation of all judged documents of the training set once :meth:`prepare` was called,
    before that by the scale's own definition, 1000 + 200 e. Never by those of a batch, which would move from step to
    step.

    Parameters
    ----------
    temperature
        The module that gives t.
    alpha
        α in [0, 1].
    hidden
        Width of the head's hidden layer.

    Examples
    --------
    >>> from anmi.training.temperature import Temperature
    >>> loss = Hybrid(Temperature(0.07), alpha=1.0)
    >>> facts = Facts(positive_judged={"elo": torch.tensor([1200.0])}, judged={"elo": torch.tensor([[900.0]])})
    >>> [round(x, 4) for x in loss(torch.tensor([0.5]), torch.tensor([[0.5]]), torch.zeros(1, 1), facts).tolist()]
    [0.6931]
    """

    columns: Final = ("elo",)
    centre: Tensor
    unit: Tensor

    def __init__(self, temperature: nn.Module, alpha: float = 0.6, hidden: int = 16) -> None:
        super().__init__()
        self.temperature = temperature
        self.alpha = checked_share("alpha", alpha)
        self.head = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.register_buffer("centre", torch.tensor(_CENTRE))
        self.register_buffer("unit", torch.tensor(_UNIT))
        self._error = torch.tensor(0.0)

    def prepare(self, rows: Sequence[Row]) -> None:
        """Take mean and deviation of Elo from the rows of the whole training.

        Raises
        ------
        AnmiError
            Nobody rated any negative of these rows.
        """
        found = all_judgments(rows, "elo")
        self.centre.fill_(float(found.mean()))
        self.unit.fill_(max(float(found.std()), 1.0))

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`.

        A row without negatives still learns the Elo of its positive; one without any Elo has InfoNCE alone.
        """
        own, others = judgments(facts, "elo")
        contrastive = infonce(positive_similarity, negative_similarity, log_weights, self.temperature(facts))
        similarity = torch.cat([positive_similarity[:, None], negative_similarity], dim=1)
        elo = torch.cat([own[:, None], others], dim=1)
        removed = torch.cat([torch.zeros_like(elo[:, :1], dtype=torch.bool), torch.isneginf(log_weights)], dim=1)
        rated = torch.isfinite(elo) & ~removed
        # Only what is rated goes through the head, so that nothing else can reach it, nor be reached by it.
        predicted = self.head(similarity[rated][:, None])[:, 0]
        squares = torch.zeros_like(similarity).masked_scatter(rated, (predicted - self._standardised(elo[rated])) ** 2)
        self._error = squares.detach().sum() / rated.sum().clamp(min=1)
        regression = squares.sum(dim=1) / rated.sum(dim=1).clamp(min=1)
        return self.alpha * contrastive + (1 - self.alpha) * regression

    def report(self) -> dict[str, float]:
        """Return the root mean squared error of the last batch, in Elo."""
        return {"elo_error": float(self._error**0.5 * self.unit)}

    def _standardised(self, elo: Tensor) -> Tensor:
        return (elo - self.centre) / self.unit
