"""InfoNCE beside a classification of the query into the entity it asks about."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.batch import Row
from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.checks import checked_share
from anmi.training.losses.infonce import infonce


class EntityClassification(nn.Module):
    """``(1 - share) · InfoNCE + share · CE``: a linear head tells from a query which entity its positive is about.

    Only queries go through the head: by that of documents, all that are about one entity would be drawn together, and
    among them the right one is to be found. Classes are the entities of the training rows, so :meth:`prepare` comes
    before the first step. All weights of the head begin at 0: it draws no embedding anywhere before it has learned
    something. A row whose positive is about none of the classes has InfoNCE alone.

    Parameters
    ----------
    temperature
        The module that gives t.
    dimensions
        Of the embeddings.
    share
        Of the classification, in [0, 1].

    References
    ----------
    methods §5, "hybrid with a URI classification head".

    Examples
    --------
    >>> from anmi.training.temperature import Temperature
    >>> loss = EntityClassification(Temperature(1.0), dimensions=2, share=0.5)
    >>> loss.classify(4)
    >>> facts = Facts(query=torch.eye(2), about=torch.tensor([3, -1]))
    >>> values = loss(torch.zeros(2), torch.zeros(2, 1), torch.zeros(2, 1), facts)
    >>> [round(x, 4) for x in (2 * values).tolist()]  # log 2 + log 4, log 2
    [2.0794, 0.6931]
    """

    classes: Tensor
    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, temperature: nn.Module, dimensions: int, share: float = 0.2) -> None:
        super().__init__()
        self.temperature = temperature
        self.share = checked_share("share", share)
        self._dimensions = dimensions
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
        found = sorted({row.about for row in rows} - {-1})
        if not found:
            raise AnmiError(
                "The loss learns which entity a query is about, and no positive of the training rows is known to be "
                "about any; train with `sources: mixed` on a collection that states facts, or choose another loss."
            )
        self.classify(found)

    def classify(self, entities: int | Sequence[int]) -> None:
        """Begin with these numbers of entities as classes, or with all below a count."""
        numbers = torch.arange(entities) if isinstance(entities, int) else torch.tensor(entities)
        self.classes = torch.full((int(numbers.max()) + 1,), -1)
        self.classes[numbers] = torch.arange(len(numbers))
        self.weight = nn.Parameter(torch.zeros(len(numbers), self._dimensions))
        self.bias = nn.Parameter(torch.zeros(len(numbers)))

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of every row; shapes as in :class:`WeightedInfoNCE`.

        A row without negatives still learns its entity.

        Raises
        ------
        AnmiError
            The facts lack the queries' embeddings or what the positives are about, or there are no classes.
        """
        if facts.query is None or facts.about is None or self.weight is None:
            raise AnmiError(
                "This loss learns which entity a query is about: give it facts with `query` and `about`, and its "
                "`prepare` the training rows, as a training with `sources: mixed` does."
            )
        contrastive = infonce(positive_similarity, negative_similarity, log_weights, self.temperature(facts))
        label = self._labels(facts.about)
        logits = functional.linear(facts.query, self.weight, self.bias)
        error = functional.cross_entropy(logits, label, ignore_index=-1, reduction="none")
        known = label >= 0
        self._accuracy = (logits.detach().argmax(dim=1) == label)[known].float().mean()
        return (1 - self.share) * contrastive + self.share * error

    def report(self) -> dict[str, float]:
        """Return the share of the last batch's queries whose entity the head told; NaN where none was to be told."""
        return {"entity_accuracy": float(self._accuracy)}

    def _labels(self, about: Tensor) -> Tensor:
        there = (about >= 0) & (about < len(self.classes))
        return torch.where(there, self.classes[about.clamp(0, len(self.classes) - 1)], -1)
