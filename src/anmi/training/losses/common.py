"""What losses share: facts of a batch, sums in log space, judgments, and a loss around another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from anmi.errors import AnmiError
from anmi.ragged import Float64s
from anmi.training.batch import Row


@dataclass(frozen=True)
class Facts:
    """About the B queries and N documents of a batch.

    Attributes
    ----------
    query, document
        Embeddings, [B, d] and [N, d], or None where a loss is used on similarities
        alone.
    positive_column
        Column of each row's own positive among the N documents, int64 [B], or None.
    hardness
        Hardness of the queries in [0, 1], [B], or None.
    positive_judged
        By column name, what judges said of each row's own positive, [B]; NaN where nobody did.
    judged
        By column name, what they said of every document for every row, [B, N]; NaN where nobody
        did.
    about
        Number of the entity that each row's positive is about, int64 [B], -1 for none; or None.
    """

    query: Tensor | None = None
    document: Tensor | None = None
    positive_column: Tensor | None = None
    hardness: Tensor | None = None
    positive_judged: dict[str, Tensor] = field(default_factory=dict)
    judged: dict[str, Tensor] = field(default_factory=dict)
    about: Tensor | None = None


NOTHING_KNOWN = Facts()


def weighted_logits(similarity: Tensor, log_weights: Tensor, temperature: Tensor) -> Tensor:
    """Return log(w exp(s / t)) [B, N], exactly -inf where w = 0; t may be [B, 1].

    The similarity of a removed negative is replaced before anything is computed from it, so neither
    its value nor its gradient (not even a NaN) reaches the result.
    """
    removed = torch.isneginf(log_weights)
    logits = similarity.masked_fill(removed, 0.0) / temperature
    logits = logits + log_weights.masked_fill(removed, 0.0)
    return logits.masked_fill(removed, -torch.inf)


def without_lonely_rows(similarity: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return both [B, N] with stand-ins in rows without negatives, and which rows those are [B].

    A row of -inf alone has no gradient in logsumexp or softmax. With zeros it has one, and is to be
    masked at the end.
    """
    lonely = torch.isneginf(log_weights).all(dim=1)
    return (
        similarity.masked_fill(lonely[:, None], 0.0),
        log_weights.masked_fill(lonely[:, None], 0.0),
        lonely,
    )


def judgments(facts: Facts, column: str) -> tuple[Tensor, Tensor]:
    """Return the judgments of each row's positive [B] and of every document for every row [B, N].

    NaN is unknown. A positive whose ``p_relevant`` is unknown has 1: the label says that it is
    relevant, and judges that weigh candidates against the positive have nothing to say of itself.
    """
    positive = facts.positive_judged[column]
    if column == "p_relevant":
        positive = torch.where(torch.isnan(positive), 1.0, positive)
    return positive, facts.judged[column]


def all_judgments(rows: Sequence[Row], column: str) -> Float64s:
    """Return all that judges said in a training set, [n]; for the check, and for the scale of Elo.

    Raises
    ------
    AnmiError
        They said nothing of any negative, so that there is nothing to learn.
    """
    positives = [row.judged[column][0] for row in rows]
    negatives = np.array([value for row in rows for value in row.judged[column][1]], np.float64)
    if not np.isfinite(negatives).any():
        raise AnmiError(
            f"The loss learns {column}, and no negative of the training rows has one: name"
            f" `{column}` under `reads` of the recipe and run the mining again, or choose another"
            " loss."
        )
    values = np.concatenate([np.array(positives, np.float64), negatives])
    return values[np.isfinite(values)]


class Loss(nn.Module):
    """What all losses have in common.

    Parameters
    ----------
    temperature
        The module that gives t; None for a loss without one.
    options
        Of this loss, see :mod:`anmi.training.parts`.
    dimensions
        Of the embeddings, for a loss that looks at them.
    """

    options: Any

    def __init__(
        self, temperature: nn.Module | None = None, options: Any = None, dimensions: int = 0
    ) -> None:
        super().__init__()
        if temperature is not None:
            self.temperature = temperature
        self.options = options
        self.dimensions = dimensions

    def prepare(self, rows: Sequence[Row]) -> None:
        """Look at all rows before the first step."""

    def report(self) -> dict[str, Tensor]:
        """Return numbers about the last batch for the log of the training, by name."""
        return {}


class Around(Loss):
    """A loss around another, which reads the same judgments and has the same temperature.

    Parameters
    ----------
    loss
        Any loss of this package.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    @property
    def temperature(self) -> nn.Module:  # type: ignore[override]
        """Of the loss inside; a module without parameters where it has none."""
        return cast(nn.Module, getattr(self.loss, "temperature", nn.Module()))

    def prepare(self, rows: Sequence[Row]) -> None:
        """Let the loss inside see the training rows."""
        self.loss.prepare(rows)

    def report(self) -> dict[str, Tensor]:
        """Return what the loss inside says of the last batch."""
        return self.loss.report()
