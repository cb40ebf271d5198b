"""Learning the judges' soft labels."""

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

# By column, where zero of the scale lies, its unit, and the temperature at which its soft labels are taken. Of Elo the
# strength e counts, of which it is 1000 + 200 e; logits and strengths are spread much wider than probabilities.
_SCALES: Final = {"p_relevant": (0.0, 1.0, 0.1), "cross": (0.0, 1.0, 1.0), "elo": (1000.0, 200.0, 1.0)}
# Of several judges the mean of scores between 0 and 1; 1/30 is the S of 30 of arXiv 2411.04403.
_TOGETHER: Final = (0.0, 1.0, 1 / 30)
# So that a judge for whom all documents of a row are equal divides by no zero (the released code of that paper).
_LEAST: Final = 1e-6


class Distillation(nn.Module):
    """``share · KL(soft labels ‖ model) + (1 - share) · InfoNCE``.

    Soft labels are the softmax of the judgments of a row at a temperature of their own; the model's are the softmax of
    its similarities at t. Both are taken over the row's own positive and all documents judged for this row: its
    negatives, and the documents whose relevance is uncertain, which are nobody's negatives and of weight 0 in InfoNCE.
    A document of weight 0 that nobody judged is not there; other weights count in InfoNCE only, the soft label being
    what the weight stands for. A labelled positive that no judge gave a ``p_relevant`` has 1. A row whose positive, or
    everything else, is unjudged has InfoNCE alone.

    Parameters
    ----------
    temperature
        The module that gives t.
    column
        Judgments: ``p_relevant``, ``cross`` (logits) or ``elo``. Of several, which may be ``bm25`` and ``dense`` as
        well, each is scaled to between 0 and 1 in every row, and the mean of those that judged a document counts.
    share
        Of the distillation, in [0, 1].
    label_temperature
        Above 0; None is 0.1 for ``p_relevant``, 1 for ``cross`` and for the strength behind ``elo``, 1/30 for several.
    uncertain
        Uncertain documents a row brings at most; none with another column than ``p_relevant``, which alone is known
        of them.

    References
    ----------
    Qu et al., "RocketQA", NAACL 2021, for labels of a cross-encoder; Hinton, Vinyals and Dean, "Distilling the
    Knowledge in a Neural Network", 2015; Geng et al., arXiv 2411.04403, for a teacher of several.

    Examples
    --------
    >>> from anmi.training.temperature import Temperature
    >>> loss = Distillation(Temperature(0.1), share=1.0)
    >>> facts = Facts(positive_judged={"p_relevant": torch.tensor([0.9])}, judged={"p_relevant": torch.tensor([[0.4]])})
    >>> [round(x, 4) for x in loss(torch.tensor([0.8]), torch.tensor([[0.3]]), torch.zeros(1, 1), facts).tolist()]
    [0.0]
    """

    def __init__(
        self,
        temperature: nn.Module,
        column: str | Sequence[str] = "p_relevant",
        share: float = 0.5,
        label_temperature: float | None = None,
        uncertain: int = 0,
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.columns = (column,) if isinstance(column, str) else tuple(column)
        self.share = checked_share("share", share)
        self.together = not isinstance(column, str)
        self.centre, self.unit, usual = _SCALES[column] if isinstance(column, str) else _TOGETHER
        self.label_temperature = usual if label_temperature is None else label_temperature
        # Of documents whose relevance is uncertain nothing but their probability is kept in the rows.
        self.uncertain = uncertain if self.columns == ("p_relevant",) else 0
        self._divergence = torch.tensor(0.0)

    def prepare(self, rows: Sequence[Row]) -> None:
        """Refuse rows without any judgment."""
        for column in self.columns:
            all_judgments(rows, column)

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`."""
        temperatures = self.temperature(facts)
        contrastive = infonce(positive_similarity, negative_similarity, log_weights, temperatures)
        divergence = self._kl(positive_similarity, negative_similarity, self._judged(facts), temperatures)
        self._divergence = divergence.detach().mean()
        return self.share * divergence + (1 - self.share) * contrastive

    def report(self) -> dict[str, float]:
        """Return the mean divergence of the last batch."""
        return {"divergence": float(self._divergence)}

    def _judged(self, facts: Facts) -> Tensor:
        """Return the judgments of the positive and of all documents, [B, 1 + N]; NaN is unknown."""
        found = []
        for column in self.columns:
            own, judged = judgments(facts, column)
            if facts.positive_column is not None:
                # The row's own positive is a column like any other, and stands before all of them already.
                judged = judged.scatter(1, facts.positive_column[:, None], torch.nan)
            found.append(torch.cat([own[:, None], judged], dim=1))
        return torch.stack([scaled(values) for values in found]).nanmean(dim=0) if self.together else found[0]

    def _kl(self, positive: Tensor, documents: Tensor, judged: Tensor, temperatures: tuple[Tensor, Tensor]) -> Tensor:
        labels = (judged - self.centre) / self.unit
        known = torch.isfinite(labels)
        usable = known[:, :1] & known[:, 1:].any(dim=1, keepdim=True)
        known = known & usable
        logits = torch.cat([positive[:, None] / temperatures[0], documents / temperatures[1]], dim=1)
        # A row without labels gets zeros all along, for the sake of finite gradients.
        removed = ~known & usable
        told, found = (
            torch.log_softmax(values.masked_fill(~known, 0.0).masked_fill(removed, -torch.inf), dim=1)
            for values in (labels / self.label_temperature, logits)
        )
        difference = (told - found).masked_fill(~known, 0.0)
        return (told.exp() * difference).sum(dim=1)


def scaled(judged: Tensor) -> Tensor:
    """Return judgments [B, N] scaled to between 0 and 1 in every row; NaN stays NaN.

    Examples
    --------
    >>> [round(x, 3) for x in scaled(torch.tensor([[4.0, 1.0, torch.nan, 2.0]]))[0].tolist()]
    [1.0, 0.0, nan, 0.333]
    """
    known = torch.isfinite(judged)
    low = judged.masked_fill(~known, torch.inf).amin(dim=1, keepdim=True)
    high = judged.masked_fill(~known, -torch.inf).amax(dim=1, keepdim=True)
    return ((judged - low) / (high - low + _LEAST)).masked_fill(~known, torch.nan)
