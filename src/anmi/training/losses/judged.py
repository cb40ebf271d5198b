"""Losses that learn what judges said, Elo or soft labels, and which entity a query is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.batch import Row
from anmi.training.losses.common import NOTHING_KNOWN, Facts, Loss, all_judgments, judgments
from anmi.training.losses.contrastive import infonce
from anmi.training.parts import TEACHER, DistillationOptions, EntityOptions, HybridOptions

# Width of the hidden layer of the head that maps similarities to Elo; the report's.
_HIDDEN: Final = 16
# By column, where zero of the scale lies, its unit, and the temperature at which its soft labels
# are taken. Of Elo the strength e counts, of which it is 1000 + 200 e; logits and strengths are
# spread much wider than probabilities.
_SCALES: Final = {
    "p_relevant": (0.0, 1.0, 0.1),
    "cross": (0.0, 1.0, 1.0),
    "elo": (1000.0, 200.0, 1.0),
    TEACHER: (0.0, 1.0, 0.5),
}
# Of several judges the mean of scores between 0 and 1; 1/30 is the S of 30 of arXiv 2411.04403.
_TOGETHER: Final = (0.0, 1.0, 1 / 30)
# So that a judge for whom all documents of a row are equal divides by no zero (the released code of
# that paper).
_EPSILON: Final = 1e-6


class Hybrid(Loss):
    """``α · InfoNCE + (1 - α) · MSE``; a small head maps similarities to Elo (methods §2).

    The error of a row is the mean over its own positive and its judged negatives; in-batch
    negatives, which nobody judged for this query, and padding have no part in it. Weights stand in
    InfoNCE; of the regression they only remove what weighs 0. Targets are standardised, since the
    squared error of raw Elo is of order 10⁶ and would swallow the contrastive term: by mean and
    deviation of all judged documents of the training set once :meth:`prepare` was called, before
    that by the scale's own definition, 1000 + 200 e. Never by those of a batch, which would move
    from step to step. Raw targets are for comparison with the report.

    Examples
    --------
    >>> from anmi.training.losses.temperature import Temperature
    >>> loss = Hybrid(Temperature(0.07), HybridOptions(alpha=1.0))
    >>> positive, judged = torch.tensor([1200.0]), torch.tensor([[900.0]])
    >>> facts = Facts(positive_judged={"elo": positive}, judged={"elo": judged})
    >>> round(loss(torch.tensor([0.5]), torch.tensor([[0.5]]), torch.zeros(1, 1), facts).item(), 4)
    0.6931
    """

    centre: Tensor
    unit: Tensor

    def __init__(self, temperature: nn.Module, options: HybridOptions, dimensions: int = 0) -> None:
        super().__init__(temperature, options)
        self.head = nn.Sequential(nn.Linear(1, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))
        centre, unit, _ = (0.0, 1.0, None) if options.targets == "raw" else _SCALES["elo"]
        self.register_buffer("centre", torch.tensor(centre))
        self.register_buffer("unit", torch.tensor(unit))
        self._error = torch.tensor(0.0)

    def prepare(self, rows: Sequence[Row]) -> None:
        """Take mean and deviation of Elo from the rows of the whole training.

        Raises
        ------
        AnmiError
            Nobody rated any negative of these rows.
        """
        elo = all_judgments(rows, "elo")
        if self.options.targets != "raw":
            self.centre.fill_(float(elo.mean()))
            self.unit.fill_(max(float(elo.std()), 1.0))

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`.

        A row without negatives still learns the Elo of its positive; one without any Elo has
        InfoNCE alone.
        """
        positive_elo, document_elo = judgments(facts, "elo")
        contrastive = infonce(positive, negatives, log_weights, self.temperature(facts))
        similarity = torch.cat([positive[:, None], negatives], dim=1)
        elo = torch.cat([positive_elo[:, None], document_elo], dim=1)
        rated = torch.isfinite(elo)
        rated[:, 1:] &= ~torch.isneginf(log_weights)
        # Only what is rated goes through the head, so that nothing else can reach it, nor be
        # reached by it.
        predicted = self.head(similarity[rated][:, None])[:, 0]
        target = (elo[rated] - self.centre) / self.unit
        squares = torch.zeros_like(similarity).masked_scatter(rated, (predicted - target) ** 2)
        self._error = squares.detach().sum() / rated.sum().clamp(min=1)
        regression = squares.sum(dim=1) / rated.sum(dim=1).clamp(min=1)
        return self.options.alpha * contrastive + (1 - self.options.alpha) * regression

    def report(self) -> dict[str, Tensor]:
        """Return the root mean squared error of the last batch, in Elo."""
        return {"elo_error": self._error**0.5 * self.unit}


class Distillation(Loss):
    """``share · KL(soft labels ‖ model) + (1 - share) · InfoNCE``.

    Soft labels are the softmax of the judgments of a row at a temperature of their own; the model's
    are the softmax of its similarities at t. Both are taken over the row's own positive and all
    documents judged for this row. A document of weight 0 that nobody judged is not there; other
    weights count in InfoNCE only, the soft label being what the weight stands for. A labelled
    positive that no judge gave a ``p_relevant`` has 1. A row whose positive, or everything else, is
    unjudged has InfoNCE alone.

    Of several judgments each is scaled to between 0 and 1 in every row, and the mean of those that
    judged a document counts.

    References
    ----------
    Qu et al., "RocketQA", NAACL 2021, for labels of a cross-encoder; Hinton, Vinyals and Dean,
    "Distilling the Knowledge in a Neural Network", 2015; Geng et al., arXiv 2411.04403, for a
    teacher of several.

    Examples
    --------
    >>> from anmi.training.losses.temperature import Temperature
    >>> loss = Distillation(Temperature(0.1), DistillationOptions(share=1.0))
    >>> positive, judged = torch.tensor([0.9]), torch.tensor([[0.4]])
    >>> facts = Facts(positive_judged={"p_relevant": positive}, judged={"p_relevant": judged})
    >>> round(loss(torch.tensor([0.8]), torch.tensor([[0.3]]), torch.zeros(1, 1), facts).item(), 4)
    0.0
    """

    def __init__(
        self, temperature: nn.Module, options: DistillationOptions, dimensions: int = 0
    ) -> None:
        super().__init__(temperature, options)
        column = options.column
        self.is_single = isinstance(column, str)
        scale = _SCALES[column] if isinstance(column, str) else _TOGETHER
        self.centre, self.unit, usual = scale
        self.label_temperature = options.label_temperature or usual
        self._divergence = torch.tensor(0.0)

    def prepare(self, rows: Sequence[Row]) -> None:
        """Refuse rows without any judgment; the teacher scored whatever there is."""
        for column in self.options.reads:
            all_judgments(rows, column)

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`."""
        temperatures = self.temperature(facts)
        contrastive = infonce(positive, negatives, log_weights, temperatures)
        divergence = self._kl(positive, negatives, self._judged(facts), temperatures)
        self._divergence = divergence.detach().mean()
        return self.options.share * divergence + (1 - self.options.share) * contrastive

    def report(self) -> dict[str, Tensor]:
        """Return the mean divergence of the last batch."""
        return {"divergence": self._divergence}

    def _judged(self, facts: Facts) -> Tensor:
        """Return the judgments of the positive and of all documents, [B, 1 + N]; NaN is unknown."""
        values = []
        for column in self.options.reads or (TEACHER,):
            positive, judged = judgments(facts, column)
            if facts.positive_column is not None:
                # The row's own positive is a column like any other, and stands before all of them
                # already.
                judged = judged.scatter(1, facts.positive_column[:, None], torch.nan)
            values.append(torch.cat([positive[:, None], judged], dim=1))
        if self.is_single:
            return values[0]
        return torch.stack([scaled(judged) for judged in values]).nanmean(dim=0)

    def _kl(
        self,
        positive: Tensor,
        documents: Tensor,
        judged: Tensor,
        temperatures: tuple[Tensor, Tensor],
    ) -> Tensor:
        labels = (judged - self.centre) / self.unit
        is_judged = torch.isfinite(labels)
        has_labels = is_judged[:, :1] & is_judged[:, 1:].any(dim=1, keepdim=True)
        is_judged = is_judged & has_labels
        # What nobody judged is replaced before anything is computed from it, see `weighted_logits`.
        documents = documents.masked_fill(~is_judged[:, 1:], 0.0)
        logits = torch.cat(
            [positive[:, None] / temperatures[0], documents / temperatures[1]], dim=1
        )

        def log_softmax(values: Tensor) -> Tensor:
            # A row without labels gets zeros all along, for the sake of finite gradients.
            values = values.masked_fill(~is_judged, 0.0)
            return values.masked_fill(~is_judged & has_labels, -torch.inf).log_softmax(dim=1)

        log_labels = log_softmax(labels / self.label_temperature)
        difference = (log_labels - log_softmax(logits)).masked_fill(~is_judged, 0.0)
        return (log_labels.exp() * difference).sum(dim=1)


def scaled(judged: Tensor) -> Tensor:
    """Return judgments [B, N] scaled to between 0 and 1 in every row; NaN stays NaN.

    Examples
    --------
    >>> [round(x, 3) for x in scaled(torch.tensor([[4.0, 1.0, torch.nan, 2.0]]))[0].tolist()]
    [1.0, 0.0, nan, 0.333]
    """
    is_unknown = ~torch.isfinite(judged)
    low = judged.masked_fill(is_unknown, torch.inf).amin(dim=1, keepdim=True)
    high = judged.masked_fill(is_unknown, -torch.inf).amax(dim=1, keepdim=True)
    return ((judged - low) / (high - low + _EPSILON)).masked_fill(is_unknown, torch.nan)


class EntityClassification(Loss):
    """``(1 - share) · InfoNCE + share · CE``: a linear head tells a query's entity.

    That is the one that its positive is about. Only queries go through the head: by that of
    documents, all that are about one entity would be drawn together, and among them the right one
    is to be found. Classes are the entities of the training rows, so :meth:`prepare` comes before
    the first step. All weights of the head begin at 0: it draws no embedding anywhere before it has
    learned something. A row whose positive is about none of the classes has InfoNCE alone.

    References
    ----------
    methods §5, "hybrid with a URI classification head".

    Examples
    --------
    >>> from anmi.training.losses.temperature import Temperature
    >>> loss = EntityClassification(Temperature(1.0), EntityOptions(share=0.5), dimensions=2)
    >>> loss.classify(range(4))
    >>> facts = Facts(query=torch.eye(2), about=torch.tensor([3, -1]))
    >>> values = loss(torch.zeros(2), torch.zeros(2, 1), torch.zeros(2, 1), facts)
    >>> [round(x, 4) for x in (2 * values).tolist()]  # log 2 + log 4, log 2
    [2.0794, 0.6931]
    """

    classes: Tensor
    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, temperature: nn.Module, options: EntityOptions, dimensions: int = 0) -> None:
        super().__init__(temperature, options, dimensions)
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        # By number of an entity its class; -1 for those that are none.
        self.register_buffer("classes", torch.empty(0, dtype=torch.int64))
        self._accuracy = torch.tensor(torch.nan)

    def prepare(self, rows: Sequence[Row]) -> None:
        """Make a class of every entity that a positive of the training is about.

        Raises
        ------
        AnmiError
            None is about any.
        """
        entities = sorted({row.about for row in rows} - {-1})
        if not entities:
            raise AnmiError(
                "The loss learns which entity a query is about, and no positive of the training"
                " rows is known to be about any; train with `sources: mixed` on a collection that"
                " states facts, or choose another loss."
            )
        self.classify(entities)

    def classify(self, entities: Sequence[int]) -> None:
        """Begin with these numbers of entities as classes."""
        numbers = torch.tensor(entities)
        self.classes = torch.full((int(numbers.max()) + 1,), -1)
        self.classes[numbers] = torch.arange(len(numbers))
        self.weight = nn.Parameter(torch.zeros(len(numbers), self.dimensions))
        self.bias = nn.Parameter(torch.zeros(len(numbers)))

    def forward(
        self, positive: Tensor, negatives: Tensor, log_weights: Tensor, facts: Facts = NOTHING_KNOWN
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`.

        A row without negatives still learns its entity.
        """
        assert facts.query is not None and facts.about is not None and self.weight is not None
        contrastive = infonce(positive, negatives, log_weights, self.temperature(facts))
        largest = len(self.classes) - 1
        is_listed = (facts.about >= 0) & (facts.about <= largest)
        label = torch.where(is_listed, self.classes[facts.about.clamp(0, largest)], -1)
        logits = functional.linear(facts.query, self.weight, self.bias)
        error = functional.cross_entropy(logits, label, ignore_index=-1, reduction="none")
        is_right = logits.detach().argmax(dim=1) == label
        self._accuracy = is_right[label >= 0].float().mean()
        return (1 - self.options.share) * contrastive + self.options.share * error

    def report(self) -> dict[str, Tensor]:
        """Return the share of the last batch's entities that the head told; NaN without any."""
        return {"entity_accuracy": self._accuracy}
