"""Our losses with sentence-transformers' own trainer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.facts import Facts


class ForSentenceTransformers(nn.Module):
    """Lets ``SentenceTransformerTrainer`` train with one of our losses on an (anchor, positive, negative_1, …) dataset.

    Texts are equal if their tokens are. A document that stands in several places of a batch counts once, and a
    positive of a row is no negative of any row with the same anchor. Negatives weigh 1. A trainer with a weight decay
    decays the parameters of a loss, too: leave it at the trainer's default of 0, or expect a learned temperature to be
    drawn towards 1.

    Parameters
    ----------
    model
        The encoder.
    loss
        One of ours; if it learns judgments, the dataset needs a column ``label`` or ``score`` with those of the
        positive and the negatives, [1 + n] a row.
    in_batch
        In-batch negatives: ``none``, the ``positives`` of the other rows, or ``all`` of their documents.

    Examples
    --------
    >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    >>> from anmi.training.losses import DebiasedContrastive
    >>> from anmi.training.temperature import Temperature
    >>> model = SentenceTransformer("organisation/encoder")  # doctest: +SKIP
    >>> loss = ForSentenceTransformers(model, DebiasedContrastive(Temperature(0.07), 0.01))  # doctest: +SKIP
    >>> SentenceTransformerTrainer(model=model, train_dataset=dataset, loss=loss).train()  # doctest: +SKIP
    """

    def __init__(
        self, model: nn.Module, loss: nn.Module, in_batch: Literal["none", "positives", "all"] = "all"
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.in_batch = in_batch

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Return the mean loss of the batch.

        Columns are tokenised anchors, positives, and then any number of negatives; labels are judgments of the positive
        and the negatives, [B, 1 + n], for a loss that learns them.

        Raises
        ------
        AnmiError
            Judgments are missing or not as many as documents.
        """
        columns = list(sentence_features)
        anchors, *documents = (_texts(features) for features in columns)
        # A copy, since encoders write their results into the features they are given.
        embedded = [self.model(dict(features))["sentence_embedding"].float() for features in columns]
        query, document = functional.normalize(embedded[0]), functional.normalize(torch.cat(embedded[1:]))
        rows, count = len(anchors), len(documents)
        first = _first_occurrence([text for column in documents for text in column]).to(document.device)
        # By row the columns of its documents, the positive's first.
        own = first.reshape(count, rows).T
        similarity = query @ document.T
        facts = Facts(
            query=query,
            document=document,
            positive_column=own[:, 0],
            negative_columns=own[:, 1:],
            **self._judged(labels, own, similarity),
        )
        weights = self._weights(anchors, first, own, similarity)
        losses: Tensor = self.loss(similarity.gather(1, own[:, :1])[:, 0], similarity, weights.log(), facts)
        return losses.mean()

    def get_config_dict(self) -> dict[str, Any]:
        """Return what the library writes into a model card."""
        return {"loss": type(self.loss).__name__, "in_batch": self.in_batch}

    def _weights(self, anchors: list[tuple[int, ...]], first: Tensor, own: Tensor, similarity: Tensor) -> Tensor:
        rows = len(anchors)
        place = torch.arange(len(first), device=first.device)
        others = {"none": 0, "positives": rows, "all": len(first)}[self.in_batch]
        weights = ((place < others) & (first == place)).to(similarity.dtype).repeat(rows, 1)
        weights.scatter_(1, own, 1.0)
        group = _first_occurrence(anchors).to(first.device)
        # The positives of all rows with the same anchor.
        known = torch.zeros_like(weights)
        known.index_put_((group, own[:, 0]), known.new_ones(rows))
        return weights.masked_fill(known[group] > 0, 0.0)

    def _judged(self, labels: Tensor | None, own: Tensor, similarity: Tensor) -> dict[str, Any]:
        columns = getattr(self.loss, "columns", ())
        if not columns:
            return {}
        if labels is None or labels.shape != own.shape:
            told = "there are none" if labels is None else f"they are {tuple(labels.shape)}"
            raise AnmiError(
                f"{type(self.loss).__name__} learns judgments: the dataset needs a column `label` with one for the "
                f"positive and each negative, {tuple(own.shape)} a batch, and {told}."
            )
        judged = torch.full_like(similarity, torch.nan).scatter(1, own, labels.to(similarity.dtype))
        return {"positive_judged": {columns[0]: judged.gather(1, own[:, :1])[:, 0]}, "judged": {columns[0]: judged}}


def _texts(features: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the tokens of every text of a column."""
    tokens: Tensor = features["input_ids"]
    if tokens.ndim == 1:
        # As static encoders have them: one stream, and where each text begins.
        return [tuple(part.tolist()) for part in torch.tensor_split(tokens.cpu(), features["offsets"][1:].cpu())]
    mask = features.get("attention_mask", torch.ones_like(tokens)).bool()
    return [tuple(row[kept].tolist()) for row, kept in zip(tokens.cpu(), mask.cpu(), strict=True)]


def _first_occurrence(texts: list[tuple[int, ...]]) -> Tensor:
    """Return for every text the place where it stands for the first time, int64."""
    seen: dict[tuple[int, ...], int] = {}
    return torch.tensor([seen.setdefault(text, place) for place, text in enumerate(texts)])
