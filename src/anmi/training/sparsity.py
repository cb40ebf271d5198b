"""Keeps the documents of a sparse retriever sparse."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from anmi.training.options.sparsity import SparsityOptions

_LEAST: Final = 1e-8


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
        λ (``weight``), T (``steps``), and documents of how few terms cost nothing (``free_terms``).
    step
        From 0.
    places
        Which documents stand at each place of the B rows, positives first: int64 [B, 1 + n], -1 for none. The sums are
        then one per place, added up. None is one sum over all documents.
    idf
        Of every term, [V]: weights are divided by it. A term of idf 0 costs nothing, since no query holds it.

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

    flops = FlopsLoss(None, threshold=options.free_terms or None).compute_loss_from_embeddings
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
