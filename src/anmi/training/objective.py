"""From a batch to one number: encode, compare, apply a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from anmi.errors import AnmiError
from anmi.training.losses.common import Facts
from anmi.training.options import SparsityOptions

# Added to an idf by which weights are divided.
_LEAST: Final = 1e-8


def not_finite(what: str, value: float, query_ids: Sequence[str]) -> AnmiError:
    """Return the error for ``what`` having become ``value`` in the batch of some queries.

    Examples
    --------
    >>> print(not_finite("training loss", float("nan"), ["q1", "q2"]))
    The training loss became nan in the batch with the queries q1, q2; lower the learning rate, or look at these rows.
    """
    named = ", ".join(query_ids[:8]) + (" and others" if len(query_ids) > 8 else "")
    return AnmiError(
        f"The {what} became {value} in the batch with the queries {named}; lower the learning rate,"
        " or look at these rows."
    )


class ContrastiveObjective(nn.Module):
    """Encodes a batch of :class:`anmi.training.batch.Batcher` and applies a loss to its similarities.

    Parameters
    ----------
    model
        The encoder.
    loss
        A loss of :mod:`anmi.training.losses`.
    autocast
        Type to encode in, or None for the encoder's own. Similarities and losses are always
        float32: divided by a small temperature, the three digits of bfloat16 would be noise of the
        size of the gaps.
    recompute
        Gradient caching: where texts take several passes, keep only their embeddings and run the
        passes again for the gradient (Chen et al., "Training Deep Nets with Sublinear Memory Cost",
        2016): the same gradients in the memory of one pass, for about a third more time, with any
        loss. An attribute, so that a training that runs out of memory can go on with it.
    sparsity
        What terms cost, for a sparse retriever; None for a dense one.
    by_dot
        Similarities of a dense one are inner products of vectors of any length, not cosines.
    margin
        Count the rows' own negatives that are less than so much less similar than the positive;
        None does not count.
    most
        Leave out documents of other rows that score above a row's positive by more than this: by
        the batch's ``guide`` where there is one, else by the similarities themselves; None leaves
        out none.
    adversary
        Length of the step by which negatives are moved against the loss, see :func:`attacked`; 0
        leaves them.
    dimensions
        Prefixes of the vectors whose losses are added up, longest first (Kusupati et al.,
        "Matryoshka Representation Learning", NeurIPS 2022); None takes the loss of whole vectors.
        Documents are left out, and heads of losses see queries, by whole vectors.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module,
        autocast: torch.dtype | None = None,
        *,
        recompute: bool = False,
        margin: float | None = None,
        most: float | None = None,
        sparsity: SparsityOptions | None = None,
        by_dot: bool = False,
        adversary: float = 0.0,
        dimensions: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.model = model
        self.loss = loss
        self.autocast = autocast
        self.recompute = recompute
        self.margin = margin
        self.most = most
        self.sparsity = sparsity
        self.adversary = adversary
        self.as_encoded = by_dot or sparsity is not None
        self.idf = query_weights(model) if sparsity is not None and sparsity.by_idf else None
        # Of the last batch: embeddings of queries and documents, the weighted losses of rows, the
        # share of negatives within the margin where it is counted, and of cosines σ_s/√N.
        self.encoded: tuple[Tensor, Tensor] | None = None
        self.losses = torch.zeros(0)
        self.seen: dict[str, Tensor] = {}

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Return the weighted sum of the rows' losses divided by their number.

        The divisor is the number of rows, not their weight, so a row pulls equally hard in
        whichever batch it is. Nothing is read from the device, which would wait for it.
        """
        queries, documents = self._encode_both(batch["queries"], batch["documents"])
        self.encoded = queries.detach(), documents.detach()
        similarity = self._similarity(queries, documents)
        own = batch["positive"][:, None]
        weights = batch["weights"]
        if self.most is not None:
            scores = similarity.detach() if batch.get("guide") is None else batch["guide"]
            weights = filtered(weights, scores, own, batch["negatives"], self.most)
            before = (batch["weights"] > 0).sum().clamp(min=1)
            self.seen["left_out"] = 1 - (weights > 0).sum() / before
        if self.margin is not None:
            self.seen["margin_violations"] = violations(
                similarity.detach(), own, batch["negatives"], self.margin
            )
        if self.sparsity is None:
            self.seen["temperature_rule"] = temperature_rule(similarity.detach(), weights)
        said = {name: values.gather(1, own)[:, 0] for name, values in batch["judged"].items()}
        told = {name: batch.get(name) for name in ("hardness", "about")}
        facts = Facts(
            queries,
            documents,
            batch["positive"],
            positive_judged=said,
            judged=batch["judged"],
            **told,
        )
        log_weights = weights.log()
        if self.dimensions is None:
            losses = self._losses(batch, queries, documents, similarity, log_weights, facts)
        else:
            losses = torch.zeros_like(batch["query_weight"])
            # The longest last, of which the loss reports.
            for size in reversed(self.dimensions):
                cut = self._compared(queries[:, :size]), self._compared(documents[:, :size])
                near = self._similarity(*cut)
                losses = losses + self._losses(batch, *cut, near, log_weights, facts)
        result: Tensor = (losses * batch["query_weight"]).mean()
        if self.sparsity is not None:
            places = (
                torch.cat([own, batch["negatives"]], dim=1) if self.sparsity.each_place else None
            )
            result = result + penalty(
                documents, self.sparsity, batch.get("step", 0), places=places, idf=self.idf
            )
        self.losses = losses.detach() * batch["query_weight"]
        return result

    def _losses(
        self,
        batch: dict[str, Any],
        queries: Tensor,
        documents: Tensor,
        similarity: Tensor,
        log_weights: Tensor,
        facts: Facts,
    ) -> Tensor:
        column = batch["positive"][:, None]
        mine = similarity.gather(1, column)[:, 0]
        if self.adversary and torch.is_grad_enabled():

            def harm(against: Tensor) -> Tensor:
                losses: Tensor = self.loss(mine.detach(), against, log_weights, facts)
                return (losses * batch["query_weight"]).sum()

            moved = attacked(queries.detach(), documents, harm, self.adversary)
            # The own positive stands among the columns, too, and is left where it is.
            similarity = (queries @ moved.T).scatter(1, column, mine[:, None])
        losses: Tensor = self.loss(mine, similarity, log_weights, facts)
        return losses

    def _compared(self, vectors: Tensor) -> Tensor:
        return vectors if self.as_encoded else functional.normalize(vectors, dim=1)

    def _similarity(self, queries: Tensor, documents: Tensor) -> Tensor:
        if self.sparsity is None:
            return queries @ documents.T
        # The other terms add nothing but time, as no query of the batch holds them.
        held = queries.detach().any(dim=0).nonzero()[:, 0]
        return queries[:, held] @ documents[:, held].T

    def _encode_both(self, queries: dict[str, Any], documents: dict[str, Any]) -> Sequence[Tensor]:
        first = queries["groups"][0]
        second = documents["groups"][0]
        if {*first, *second} != {"input_ids", "offsets"}:
            return self._encode(queries), self._encode(documents)
        # Of a table in one call, since each makes a gradient that is as large as the table.
        offsets = torch.cat([first["offsets"], second["offsets"] + len(first["input_ids"])])
        group = {
            "input_ids": torch.cat([first["input_ids"], second["input_ids"]]),
            "offsets": offsets,
        }
        place = torch.cat([queries["place"], documents["place"] + len(queries["place"])])
        return self._encode({"groups": [group], "place": place}).tensor_split(
            [len(queries["place"])]
        )

    def _encode(self, texts: dict[str, Any]) -> Tensor:
        groups = texts["groups"]
        if self.recompute and len(groups) > 1 and torch.is_grad_enabled():
            parts = [checkpoint(self._encode_group, group, use_reentrant=False) for group in groups]
        else:
            parts = [self._encode_group(group) for group in groups]
        return self._compared(torch.cat(parts)[texts["place"]])

    def _encode_group(self, group: dict[str, Any]) -> Tensor:
        # A copy, since encoders write their results into the features they are given.
        with torch.autocast(
            group["input_ids"].device.type, dtype=self.autocast, enabled=self.autocast is not None
        ):
            embedding: Tensor = self.model(dict(group))["sentence_embedding"]
        return embedding.float()


def filtered(
    weights: Tensor, scores: Tensor, own: Tensor, negatives: Tensor, most: float
) -> Tensor:
    """Return the weights with 0 for documents of other rows that score above a row's positive by more than ``most``.

    A row's own mined negatives stay, since the recipe judged them.

    Parameters
    ----------
    weights, scores
        Of every document for every row, [B, U].
    own, negatives
        Columns of the positive, [B, 1], and of mined negatives, [B, n], padded with -1.
    most
        Margin that is allowed, in the unit of the scores.

    Examples
    --------
    >>> scores = torch.tensor([[0.5, 0.7, 0.55]])
    >>> filtered(torch.ones(1, 3), scores, torch.tensor([[0]]), torch.tensor([[-1]]), 0.1).tolist()
    [[1.0, 0.0, 1.0]]
    """
    mined = torch.zeros(len(weights), weights.shape[1] + 1, dtype=torch.bool, device=weights.device)
    mined.scatter_(1, negatives.where(negatives >= 0, weights.shape[1]), value=True)
    return weights.masked_fill((scores > scores.gather(1, own) + most) & ~mined[:, :-1], 0.0)


def attacked(
    queries: Tensor, documents: Tensor, harm: Callable[[Tensor], Tensor], length: float
) -> Tensor:
    """Move documents up the gradient that a loss has by them as negatives, and back onto the unit sphere.

    d′ = (d + ε·g/‖g‖)/‖d + ε·g/‖g‖‖ with g = ∂L/∂d, the fast gradient method with the norm L2. The
    step itself has no gradient. A document that is nobody's negative has g = 0 and stays.

    Parameters
    ----------
    queries, documents
        Unit vectors [B, d] and [U, d].
    harm
        Loss of a batch by the similarities of the negatives, [B, U].
    length
        ε.

    Returns
    -------
    Tensor
        [U, d], unit vectors.

    References
    ----------
    Goodfellow, Shlens and Szegedy, "Explaining and Harnessing Adversarial Examples", ICLR 2015; on
    embeddings in place of inputs Miyato, Dai and Goodfellow, "Adversarial Training Methods for
    Semi-Supervised Text Classification", ICLR 2017.
    """
    still = documents.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(harm(queries @ still.T), still)
    # Without this a step of a document that nothing pulls at would be 0/0.
    step = length * gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return functional.normalize(documents + step, dim=1)


def temperature_rule(similarity: Tensor, weights: Tensor) -> Tensor:
    """Return σ_s/√N, to which the best temperature is said to be in proportion (ANMI 2.1 report; methods §3.7).

    σ_s is the deviation of the similarities of all negatives of a batch, N their mean number a row.
    Nothing goes by it; beside the temperature that is learned it shows in a log whether the two
    move together. NaN without negatives.

    Parameters
    ----------
    similarity
        [B, U].
    weights
        As negatives, [B, U]; 0 where a document is none of the row.

    Examples
    --------
    >>> near = torch.tensor([[0.9, 0.2, 0.4], [0.1, 0.8, 0.6]])
    >>> round(float(temperature_rule(near, torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.0, 1.0]]))), 4)
    0.1358
    """
    is_negative = weights > 0
    count = is_negative.sum()
    mean = (similarity * is_negative).sum() / count
    variance = ((similarity - mean) ** 2 * is_negative).sum() / count
    return torch.sqrt(variance * len(similarity) / count)


def violations(similarity: Tensor, positive: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Return the share of the rows' own negatives with s⁻ > s⁺ - margin; NaN where there is none.

    Similarities are [B, U]; the positive's column is int64 [B, 1], the negatives' [B, n], padded
    with -1.

    Examples
    --------
    >>> near = torch.tensor([[0.9, 0.85, 0.2]])
    >>> float(violations(near, torch.tensor([[0]]), torch.tensor([[1, 2, -1]]), 0.1))
    0.5
    """
    there = negatives >= 0
    within = similarity.gather(1, negatives.clamp(min=0)) > similarity.gather(1, positive) - margin
    return (within & there).sum() / there.sum()


def penalty(
    documents: Tensor,
    options: SparsityOptions,
    step: int,
    *,
    places: Tensor | None = None,
    idf: Tensor | None = None,
) -> Tensor:
    """Return λ min(1, step / T)² Σ_t (mean over documents of |d_t|)², the expected cost of a search.

    Parameters
    ----------
    documents
        Weights of terms, [N, V].
    options
        λ (``weight``) and T (``steps``).
    step
        From 0.
    places
        Which documents stand at each place of the B rows, positives first: int64 [B, 1 + n], -1 for
        none. The sums are then one per place, added up. None is one sum over all documents.
    idf
        Of every term, [V]: weights are divided by it. A term of idf 0 costs nothing, since no query
        holds it.

    Examples
    --------
    >>> options = SparsityOptions(weight=0.5, steps=10)
    >>> documents = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    >>> float(penalty(documents, options, step=5))
    0.5
    >>> float(penalty(documents, options, step=5, places=torch.tensor([[0, 1]])))
    1.25
    """
    from sentence_transformers.sparse_encoder.losses import FlopsLoss

    flops = FlopsLoss(None, threshold=None).compute_loss_from_embeddings
    if idf is not None:
        documents = documents * torch.where(idf > 0, 1 / (idf + _LEAST), 0.0)
    if places is None:
        cost = flops(documents)
    else:
        there = [place[place >= 0] for place in places.T]
        cost = torch.stack([flops(documents[place]) for place in there if len(place)]).sum()
    return options.weight * min(1.0, step / options.steps) ** 2 * cost


def query_weights(model: Any) -> Tensor:
    """Return what terms weigh in queries of an inference-free model, [V]: before training, their idf."""
    weight: Tensor = model[0].sub_modules["query"][0].weight
    return weight.detach().clone()
