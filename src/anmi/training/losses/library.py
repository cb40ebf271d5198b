"""The losses of sentence-transformers, on embeddings that are there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from sentence_transformers.sentence_transformer import losses as library
from torch import Tensor, nn

from anmi.errors import AnmiError, nearest
from anmi.training.batch import Row
from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.judgments import all_judgments, judgments
from anmi.training.options.library_losses import FED_WITH, LEARNS_SCORES, check_library_name, inner_name

Features = list[dict[str, Tensor]]


class LibraryLoss(nn.Module):
    """Any loss of sentence-transformers that can be fed from queries, positives and negatives.

    What it is fed with depends on the loss (:data:`anmi.training.options.library_losses.FED_WITH`):

    - ``columns``: (query, positive, negative_1 … negative_n). A row with fewer negatives than another of its batch
      repeats its own; one without any takes those of the row before it that has some.
    - ``pairs``: (query, positive) alone.
    - ``triplets``: (query, positive, negative), one for every negative of every row.
    - ``margins``: such triplets with the judged margin between the two documents; where one is unjudged, none. A
      labelled positive that no judge gave a ``p_relevant`` has 1.
    - ``scores``: (query, positive, negative_1 … negative_n) with their judgments, rows of equal n together.
    - ``rated_pairs``: (query, document) with a label: 1 for positives and 0 for negatives, or their judgment.
    - ``classes``: all queries and documents, a query being of the class of its positive.

    These losses know neither weights nor which documents are known to be relevant. A negative of weight 0 is left out;
    other weights count for nothing, and losses that take the rest of the batch as negatives take all of it. They give
    one number for a batch: every row gets it, so a weight of queries scales whole batches only.

    Parameters
    ----------
    name
        Class in ``sentence_transformers.sentence_transformer.losses``.
    arguments
        Of the class, besides the model. ``loss`` of MatryoshkaLoss is another name.
    column
        Judgment that serves as label, where the loss has use for one. None: ``p_relevant`` for the losses that learn
        judgments, 1 and 0 for those that learn pairs.
    scale
        Judgments are multiplied by it.
    dimensions
        Of the embeddings, for MatryoshkaLoss.

    Raises
    ------
    AnmiError
        There is no such loss, it cannot be fed, or it refuses the arguments.

    Examples
    --------
    >>> loss = LibraryLoss("MultipleNegativesRankingLoss", {"scale": 1.0})
    >>> facts = Facts(query=torch.eye(2), document=torch.eye(2), positive_column=torch.arange(2))
    >>> nobody = torch.full((2, 2), -torch.inf)
    >>> [round(x, 4) for x in loss(torch.ones(2), torch.eye(2), nobody, facts).tolist()]
    [0.3133, 0.3133]
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        column: str | None = None,
        scale: float = 1.0,
        dimensions: int | None = None,
    ) -> None:
        super().__init__()
        inner = dict(arguments or {})
        model = _Embedded(dimensions)
        fed_name = inner_name(_checked(name), inner)
        if fed_name != name:
            inner["loss"] = _made(fed_name, model, {})
        self.fed_with = FED_WITH[_checked(fed_name)]
        self.loss = _made(name, model, inner)
        learns = self.fed_with in LEARNS_SCORES
        self.column = column or ("p_relevant" if learns else None)
        self.columns = (self.column,) if self.column and (learns or self.fed_with == "rated_pairs") else ()
        self.scale = scale

    def prepare(self, rows: Sequence[Row]) -> None:
        """Refuse rows without any of the judgments that the loss learns."""
        if self.columns:
            all_judgments(rows, self.columns[0])

    def forward(
        self,
        positive_similarity: Tensor,
        negative_similarity: Tensor,
        log_weights: Tensor,
        facts: Facts = NOTHING_KNOWN,
    ) -> Tensor:
        """Return the loss of the batch for every row, [B]; shapes as in :class:`WeightedInfoNCE`.

        Only the embeddings in ``facts`` are compared. 0, with zero gradient, where there is nothing to feed.
        """
        if facts.query is None or facts.document is None or facts.positive_column is None:
            raise AnmiError("A loss of sentence-transformers needs the embeddings: give it the facts with all of them.")
        batch = _Batch(facts.query, facts.document, facts.positive_column, _own(log_weights, facts))
        fed = _FEEDERS[self.fed_with](batch, *self._labels(facts, log_weights))
        nothing = 0.0 * (facts.query.sum() + facts.document.sum())
        if not fed:
            return nothing.expand(len(facts.query))
        # One call, or one for each number of negatives, weighted by its rows.
        rows = sum(len(features[0]["sentence_embedding"]) for features, _ in fed)
        found = [
            _number(self.loss(features, labels)) * (len(features[0]["sentence_embedding"]) / rows)
            for features, labels in fed
        ]
        result: Tensor = nothing + torch.stack(found).sum()
        return result.expand(len(facts.query))

    def report(self) -> dict[str, float]:
        """Return the temperature where the loss has a scale."""
        scale = getattr(self.loss, "scale", None)
        return {"temperature": 1.0 / float(scale)} if scale else {}

    def _labels(self, facts: Facts, log_weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is said of each row's positive [B] and of every document for every row [B, N]."""
        if not self.columns:
            return log_weights.new_ones(len(log_weights)), torch.zeros_like(log_weights)
        own, others = judgments(facts, self.columns[0])
        return self.scale * own, self.scale * others


class _Embedded(nn.Module):
    """Stands in for the encoder: its input holds the embeddings already."""

    def __init__(self, dimensions: int | None) -> None:
        super().__init__()
        self._dimensions = dimensions

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return dict(features)

    def get_embedding_dimension(self) -> int | None:
        return self._dimensions


class _Batch:
    """Embeddings, and each row's own negatives as columns [B, n], -1 where there are no more."""

    def __init__(self, query: Tensor, document: Tensor, positive: Tensor, own: Tensor) -> None:
        self.query, self.document, self.positive, self.own = query, document, positive, own

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Row and column of every own negative."""
        row, place = torch.nonzero(self.own >= 0, as_tuple=True)
        return row, self.own[row, place]


def _own(log_weights: Tensor, facts: Facts) -> Tensor:
    """Return the columns of the negatives of a weight above 0, those of each row together at its start."""
    if facts.negative_columns is None:
        count = log_weights.shape[1]
        columns = torch.arange(count, device=log_weights.device).expand(len(log_weights), count)
    else:
        columns = facts.negative_columns
    if columns.shape[1] == 0:
        return columns
    removed = (columns < 0) | torch.isneginf(log_weights.gather(1, columns.clamp(min=0)))
    order = removed.to(torch.int8).argsort(dim=1, stable=True)
    kept = columns.masked_fill(removed, -1).gather(1, order)
    return kept[:, : int((~removed).sum(dim=1).max())]


def _features(*columns: Tensor) -> Features:
    return [{"sentence_embedding": column} for column in columns]


Fed = list[tuple[Features, Tensor | None]]


def _columns(batch: _Batch, own: Tensor, others: Tensor) -> Fed:
    count = (batch.own >= 0).sum(dim=1)
    places = torch.arange(batch.own.shape[1], device=count.device)
    has = count > 0
    if not bool(has.any()):
        return _pairs(batch, own, others)
    # The last row up to this one that has negatives; before the first such row, that one.
    numbers = torch.arange(len(count), device=count.device)
    lender = torch.where(has, numbers, -1).cummax(dim=0).values
    lender = torch.where(lender < 0, has.to(torch.int8).argmax(), lender)
    negatives = batch.own[lender[:, None], places[None, :] % count[lender][:, None]]
    columns = [batch.document[column] for column in negatives.unbind(dim=1)]
    return [(_features(batch.query, batch.document[batch.positive], *columns), None)]


def _pairs(batch: _Batch, own: Tensor, others: Tensor) -> Fed:
    return [(_features(batch.query, batch.document[batch.positive]), None)]


def _triplets(batch: _Batch, own: Tensor, others: Tensor) -> Fed:
    row, column = batch.pairs()
    documents = batch.document[batch.positive[row]], batch.document[column]
    return [(_features(batch.query[row], *documents), None)] if len(row) else []


def _margins(batch: _Batch, own: Tensor, others: Tensor) -> Fed:
    row, column = batch.pairs()
    margin = own[row] - others[row, column]
    known = torch.isfinite(margin)
    row, column = row[known], column[known]
    documents = batch.document[batch.positive[row]], batch.document[column]
    return [(_features(batch.query[row], *documents), margin[known])] if len(row) else []


def _scores(batch: _Batch, own: Tensor, others: Tensor) -> Fed:
    if batch.own.shape[1] == 0:
        return []
    told = others.gather(1, batch.own.clamp(min=0))
    known = (batch.own >= 0) & torch.isfinite(told) & torch.isfinite(own)[:, None]
    order = (~known).to(torch.int8).argsort(dim=1, stable=True)
    columns, told, count = batch.own.gather(1, order), told.gather(1, order), known.sum(dim=1)
    fed: Fed = []
    for number in sorted(set(count[count > 0].tolist())):
        rows = torch.nonzero(count == number)[:, 0]
        negatives = [batch.document[column] for column in columns[rows, :number].unbind(dim=1)]
        features = _features(batch.query[rows], batch.document[batch.positive[rows]], *negatives)
        fed.append((features, torch.cat([own[rows, None], told[rows, :number]], dim=1)))
    return fed


def _rated_pairs(batch: _Batch, own: Tensor, others: Tensor) -> Fed:
    row, column = batch.pairs()
    rows = torch.cat([torch.arange(len(own), device=row.device), row])
    columns, labels = torch.cat([batch.positive, column]), torch.cat([own, others[row, column]])
    known = torch.isfinite(labels)
    features = _features(batch.query[rows[known]], batch.document[columns[known]])
    return [(features, labels[known])] if bool(known.any()) else []


def _classes(batch: _Batch, own: Tensor, others: Tensor) -> Fed:
    columns = torch.unique(torch.cat([batch.positive, batch.pairs()[1]]))
    return [
        (_features(torch.cat([batch.query, batch.document[columns]])), torch.cat([batch.positive, columns])),
    ]


_FEEDERS: Final[dict[str, Callable[[_Batch, Tensor, Tensor], Fed]]] = {
    "columns": _columns,
    "pairs": _pairs,
    "triplets": _triplets,
    "margins": _margins,
    "scores": _scores,
    "rated_pairs": _rated_pairs,
    "classes": _classes,
}


def _number(value: Any) -> Tensor:
    # Some give their terms by name.
    result: Tensor = torch.stack(list(value.values())).sum() if isinstance(value, dict) else value
    return result


def _checked(name: str) -> str:
    try:
        return check_library_name(name)
    except ValueError as error:
        raise AnmiError(f"training: {error}") from error


def _made(name: str, model: nn.Module, arguments: Mapping[str, Any]) -> nn.Module:
    kind = getattr(library, _checked(name), None)
    if kind is None:
        raise AnmiError(
            f'This version of sentence-transformers has no loss "{name}"; {nearest(name, library.__all__)}.'
        )
    try:
        made: nn.Module = kind(model, **_understood(name, arguments))
    except (TypeError, ValueError) as error:
        raise AnmiError(f"{name} refuses its arguments: {error}; see them in the library's documentation.") from error
    return made


def _understood(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with those functions and switches that YAML cannot name or that must stand as they do."""
    if name == "MegaBatchMarginLoss":
        return {**arguments, "use_mini_batched_version": False}
    if name == "TripletLoss" and isinstance(metric := arguments.get("distance_metric"), str):
        known = {key: value for key, value in vars(library.TripletDistanceMetric).items() if key.isupper()}
        if metric.upper() not in known:
            raise ValueError(f'there is no distance_metric "{metric}"; {nearest(metric.upper(), known)}')
        # A plain function in the class, not a bound one.
        return {**arguments, "distance_metric": getattr(library.TripletDistanceMetric, metric.upper())}
    return dict(arguments)
