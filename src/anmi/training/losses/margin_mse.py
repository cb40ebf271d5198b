"""Learning the judges' margins."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.training.batch import Row
from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.judgments import all_judgments, judgments


class MarginMSE(nn.Module):
    """Squared error of the margin between positive and negative, ``((s⁺ - s⁻) - c·(j⁺ - j⁻))²``.

    The mean over a batch's own negatives, of any weight above 0; a margin nobody judged is left out. Every row gets it,
    so a weight of queries scales whole batches only. A labelled positive that no judge gave a ``p_relevant`` has 1.

    Parameters
    ----------
    column
        Judgments j: ``p_relevant``, ``cross`` or ``elo``.
    scale
        c, by which judgments are multiplied.

    References
    ----------
    Hofstätter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation", 2020.

    Examples
    --------
    >>> facts = Facts(
    ...     positive_judged={"p_relevant": torch.tensor([0.75])}, judged={"p_relevant": torch.tensor([[0.25]])},
    ...     negative_columns=torch.tensor([[0]]),
    ... )
    >>> MarginMSE()(torch.tensor([0.75]), torch.tensor([[0.25]]), torch.zeros(1, 1), facts).tolist()
    [0.0]
    """

    def __init__(self, column: str = "p_relevant", scale: float = 1.0) -> None:
        super().__init__()
        self.columns = (column,)
        self.scale = scale

    def prepare(self, rows: Sequence[Row]) -> None:
        """Refuse rows without any judgment."""
        all_judgments(rows, self.columns[0])

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of the batch for every row, [B]; shapes as in :class:`WeightedInfoNCE`.

        0, with zero gradient, where no margin is known.
        """
        positive_judged, judged = judgments(facts, self.columns[0])
        own = torch.full_like(log_weights, facts.negative_columns is None, dtype=torch.bool)
        if facts.negative_columns is not None:
            row, place = torch.nonzero(facts.negative_columns >= 0, as_tuple=True)
            own[row, facts.negative_columns[row, place]] = True
        target = self.scale * (positive_judged[:, None] - judged)
        row, column = torch.nonzero(own & ~torch.isneginf(log_weights) & torch.isfinite(target), as_tuple=True)
        if not len(row):
            return positive_similarity * 0.0
        margin = positive_similarity[row] - negative_similarity[row, column]
        return functional.mse_loss(margin, target[row, column]).expand(len(positive_similarity))
