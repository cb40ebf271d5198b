"""Weighted sums of exponentials, in log space and with exact zeros."""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_logits(similarity: Tensor, log_weights: Tensor, temperature: Tensor) -> Tensor:
    """Return log(w exp(s / t)), exactly -inf where w = 0.

    The similarity of a removed negative is replaced before anything is computed from it, so neither its value nor its
    gradient (not even a NaN) reaches the result.

    Parameters
    ----------
    similarity
        Similarities, shape [B, N].
    log_weights
        Logarithms of the weights, shape [B, N]; -inf removes a negative.
    temperature
        t without dimensions, or [B, 1].

    Returns
    -------
    torch.Tensor
        Shape [B, N].
    """
    removed = torch.isneginf(log_weights)
    logits = similarity.masked_fill(removed, 0.0) / temperature + log_weights.masked_fill(removed, 0.0)
    return logits.masked_fill(removed, -torch.inf)
