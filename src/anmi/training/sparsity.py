"""Keeps the documents of a sparse retriever sparse."""

from __future__ import annotations

from torch import Tensor

from anmi.training.options.sparsity import SparsityOptions


def penalty(documents: Tensor, options: SparsityOptions, step: int) -> Tensor:
    """Return λ min(1, step / T)² Σ_t (mean over documents of |d_t|)², the expected cost of a search.

    Parameters
    ----------
    documents
        Weights of terms, [N, V].
    options
        λ (``weight``) and T (``steps``).
    step
        From 0.

    Examples
    --------
    >>> import torch
    >>> float(penalty(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), SparsityOptions(weight=0.5, steps=10), step=5))
    0.5
    """
    from sentence_transformers.sparse_encoder.losses import FlopsLoss

    flops: Tensor = FlopsLoss(None).compute_loss_from_embeddings(documents)
    return options.weight * min(1.0, step / options.steps) ** 2 * flops
