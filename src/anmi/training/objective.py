"""From a batch to one number: encode, compare, apply a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from anmi.errors import AnmiError
from anmi.training.losses.common import Facts
from anmi.training.options import SparsityOptions

# Added to an idf by which weights are divided.
_SMALLEST_IDF: Final = 1e-8


def not_finite(quantity: str, value: float, query_ids: Sequence[str]) -> AnmiError:
    """Return the error for a ``quantity`` that became ``value`` in the batch of some queries."""
    listed = ", ".join(query_ids[:8]) + (" and others" if len(query_ids) > 8 else "")
    return AnmiError(
        f"The {quantity} became {value} in the batch with the queries {listed}; lower the learning"
        " rate, or look at these rows."
    )


class ContrastiveObjective(nn.Module):
    """Encodes a batch of :class:`anmi.training.batch.Batcher` and applies a loss to it.

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
    filter_margin
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
        filter_margin: float | None = None,
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
        self.filter_margin = filter_margin
        self.sparsity = sparsity
        self.adversary = adversary
        self.as_encoded = by_dot or sparsity is not None
        self.idf: Tensor | None = None
        if sparsity is not None and sparsity.by_idf:
            # Query weights of an inference-free model are idf before training.
            sparse_model: Any = model
            self.idf = sparse_model[0].sub_modules["query"][0].weight.detach().clone()
        # Of the last batch: embeddings of queries and documents, the weighted losses of rows, and
        # the shares of negatives that are left out or within the margin.
        self.encoded: tuple[Tensor, Tensor] | None = None
        self.losses = torch.zeros(0)
        self.measures: dict[str, Tensor] = {}

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Return the weighted sum of the rows' losses divided by their number.

        The divisor is the number of rows, not their weight, so a row pulls equally hard in
        whichever batch it is. Nothing is read from the device, which would wait for it.
        """
        queries = self._encode(batch["queries"])
        documents = batch["documents"].get("vectors")
        if documents is None:
            documents = self._encode(batch["documents"])
        self.encoded = queries.detach(), documents.detach()
        similarity = self._similarity(queries, documents)
        own_columns = batch["positive"][:, None]
        weights = self._weights(batch, similarity, own_columns)
        facts = Facts(
            queries,
            documents,
            batch["positive"],
            batch.get("hardness"),
            {name: judged.gather(1, own_columns)[:, 0] for name, judged in batch["judged"].items()},
            batch["judged"],
            batch.get("about"),
        )
        log_weights = weights.log()
        if self.dimensions is None:
            losses = self._losses(batch, queries, documents, similarity, log_weights, facts)
        else:
            losses = torch.zeros_like(batch["query_weight"])
            # The longest last, of which the loss reports.
            for size in reversed(self.dimensions):
                prefixes = self._compared(queries[:, :size]), self._compared(documents[:, :size])
                near = self._similarity(*prefixes)
                losses = losses + self._losses(batch, *prefixes, near, log_weights, facts)
        weighted = losses * batch["query_weight"]
        result: Tensor = weighted.mean()
        if self.sparsity is not None:
            places = None
            if self.sparsity.each_place:
                places = torch.cat([own_columns, batch["negatives"]], dim=1)
            step = batch.get("step", 0)
            result = result + penalty(documents, self.sparsity, step, places=places, idf=self.idf)
        self.losses = weighted.detach()
        return result

    def _weights(self, batch: dict[str, Any], similarity: Tensor, own_columns: Tensor) -> Tensor:
        """Return the weights of the batch without what the filter leaves out."""
        weights: Tensor = batch["weights"]
        negatives = batch["negatives"]
        similarity = similarity.detach()
        if self.filter_margin is not None:
            scores = similarity if batch.get("guide") is None else batch["guide"]
            present = (weights > 0).sum().clamp(min=1)
            weights = filtered(weights, scores, own_columns, negatives, self.filter_margin)
            self.measures["left_out"] = 1 - (weights > 0).sum() / present
        if self.margin is not None:
            within = violations(similarity, own_columns, negatives, self.margin)
            self.measures["margin_violations"] = within
        return weights

    def _losses(
        self,
        batch: dict[str, Any],
        queries: Tensor,
        documents: Tensor,
        similarity: Tensor,
        log_weights: Tensor,
        facts: Facts,
    ) -> Tensor:
        own_columns = batch["positive"][:, None]
        positive = similarity.gather(1, own_columns)[:, 0]
        if self.adversary and torch.is_grad_enabled():

            def harm(against: Tensor) -> Tensor:
                losses: Tensor = self.loss(positive.detach(), against, log_weights, facts)
                return (losses * batch["query_weight"]).sum()

            moved = attacked(queries.detach(), documents, harm, self.adversary)
            # The own positive stands among the columns, too, and is left where it is.
            similarity = (queries @ moved.T).scatter(1, own_columns, positive[:, None])
        losses: Tensor = self.loss(positive, similarity, log_weights, facts)
        return losses

    def _compared(self, vectors: Tensor) -> Tensor:
        return vectors if self.as_encoded else functional.normalize(vectors, dim=1)

    def _similarity(self, queries: Tensor, documents: Tensor) -> Tensor:
        if self.sparsity is None:
            return queries @ documents.T
        # The other terms add nothing but time, as no query of the batch holds them.
        held = queries.detach().any(dim=0).nonzero()[:, 0]
        return queries[:, held] @ documents[:, held].T

    def _encode(self, texts: dict[str, Any]) -> Tensor:
        groups = texts["groups"]
        if self.recompute and len(groups) > 1 and torch.is_grad_enabled():
            passes = [
                checkpoint(self._encode_group, group, use_reentrant=False) for group in groups
            ]
        else:
            passes = [self._encode_group(group) for group in groups]
        return self._compared(torch.cat(passes)[texts["place"]])

    def _encode_group(self, group: dict[str, Any]) -> Tensor:
        # A copy, since encoders write their results into the features they are given.
        with torch.autocast(
            group["input_ids"].device.type, dtype=self.autocast, enabled=self.autocast is not None
        ):
            embedding: Tensor = self.model(dict(group))["sentence_embedding"]
        return embedding.float()


class TokenMeans:
    """Means of a table's token vectors, whose gradient stays where it was in the last step.

    It is as large as the table, and a system takes longer to find new memory for it than a step
    takes for all else. All-zero token vectors have none and stay zero.

    Parameters
    ----------
    table
        [V, D], in main memory.

    Examples
    --------
    >>> table = nn.Parameter(torch.tensor([[0.0], [2.0], [4.0]]))
    >>> means = TokenMeans(table)(torch.tensor([0, 1, 1, 1, 2]), torch.tensor([0, 4]))
    >>> means.ravel().tolist()
    [1.5, 4.0]
    >>> means.sum().backward()
    >>> table.grad.ravel().tolist()
    [0.0, 0.75, 1.0]
    """

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._is_silent = (table == 0).all(dim=1)
        self._gradient: Tensor | None = None

    def __call__(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        """Return the mean vector of each text, [T, D]; see :class:`torch.nn.EmbeddingBag`."""
        apply: Any = _Means.apply
        means: Tensor = apply(self._table, tokens, offsets, self)
        return means

    def add(self, tokens: Tensor, offsets: Tensor, gradient: Tensor) -> None:
        """Add to the table's gradient what follows from that of the means, [T, D]."""
        table = self._table
        starts = np.append(offsets.numpy(), len(tokens))
        ones = np.ones(len(tokens), np.float32)
        shape = (len(offsets), len(table))
        # Sorted by counting, which takes a fifth of the time of comparing.
        by_token = sparse.csr_matrix((ones, tokens.numpy(), starts), shape).tocsc()
        numbers = np.flatnonzero(np.diff(by_token.indptr))
        lengths = torch.from_numpy(np.maximum(np.diff(starts), 1))
        rows = functional.embedding_bag(
            torch.from_numpy(by_token.indices),
            gradient / lengths[:, None],
            torch.from_numpy(by_token.indptr[numbers]),
            mode="sum",
        )
        rows[self._is_silent[numbers]] = 0
        if table.grad is None:
            if self._gradient is None:
                self._gradient = torch.empty_like(table)
            table.grad = self._gradient.zero_()
        table.grad.index_add_(0, torch.from_numpy(numbers), rows)


class _Means(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, table: Tensor, tokens: Tensor, offsets: Tensor, means: TokenMeans
    ) -> Tensor:
        context.save_for_backward(tokens, offsets)
        context.means = means
        return functional.embedding_bag(tokens, table, offsets)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[None, None, None, None]:
        context.means.add(*context.saved_tensors, gradient)
        return None, None, None, None


def filtered(
    weights: Tensor, scores: Tensor, own_columns: Tensor, negatives: Tensor, margin: float
) -> Tensor:
    """Return the weights with 0 for documents of other rows that score above a row's positive.

    A row's own mined negatives stay, since the recipe judged them.

    Parameters
    ----------
    weights, scores
        Of every document for every row, [B, U].
    own_columns, negatives
        Columns of the positive, [B, 1], and of mined negatives, [B, n], padded with -1.
    margin
        By how much they may score above it, in the unit of the scores.

    Examples
    --------
    >>> scores = torch.tensor([[0.5, 0.7, 0.55]])
    >>> filtered(torch.ones(1, 3), scores, torch.tensor([[0]]), torch.tensor([[-1]]), 0.1).tolist()
    [[1.0, 0.0, 1.0]]
    """
    mined = torch.zeros(len(weights), weights.shape[1] + 1, dtype=torch.bool, device=weights.device)
    mined.scatter_(1, negatives.where(negatives >= 0, weights.shape[1]), value=True)
    is_above = scores > scores.gather(1, own_columns) + margin
    return weights.masked_fill(is_above & ~mined[:, :-1], 0.0)


def attacked(
    queries: Tensor, documents: Tensor, harm: Callable[[Tensor], Tensor], length: float
) -> Tensor:
    """Move documents up the loss's gradient by them as negatives, and back onto the unit sphere.

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


def violations(similarity: Tensor, own_columns: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Return the share of the rows' own negatives with s⁻ > s⁺ - margin; NaN where there is none.

    Similarities are [B, U]; the positive's column is int64 [B, 1], the negatives' [B, n], padded
    with -1.

    Examples
    --------
    >>> near = torch.tensor([[0.9, 0.85, 0.2]])
    >>> float(violations(near, torch.tensor([[0]]), torch.tensor([[1, 2, -1]]), 0.1))
    0.5
    """
    is_negative = negatives >= 0
    threshold = similarity.gather(1, own_columns) - margin
    is_within = similarity.gather(1, negatives.clamp(min=0)) > threshold
    return (is_within & is_negative).sum() / is_negative.sum()


def penalty(
    documents: Tensor,
    options: SparsityOptions,
    step: int,
    *,
    places: Tensor | None = None,
    idf: Tensor | None = None,
) -> Tensor:
    """Return λ min(1, step / T)² Σ_t (mean of |d_t|)², the expected cost of a search.

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
        documents = documents * torch.where(idf > 0, 1 / (idf + _SMALLEST_IDF), 0.0)
    if places is None:
        cost = flops(documents)
    else:
        numbers = [place[place >= 0] for place in places.T]
        cost = torch.stack([flops(documents[place]) for place in numbers if len(place)]).sum()
    return options.weight * min(1.0, step / options.steps) ** 2 * cost
