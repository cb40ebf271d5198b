"""Weighted sums of exponentials, in log space and with exact zeros."""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_logits(similarity: Tensor, log_weights: Tensor, temperature: Tensor) -> Tensor:
    """Return log(w exp(s / t)) of similarities and log-weights [B, N], exactly -inf where w = 0; t may be [B, 1].

    The similarity of a removed negative is replaced before anything is computed from it, so neither its value nor its
    gradient (not even a NaN) reaches the result.
    """
    removed = torch.isneginf(log_weights)
    logits = similarity.masked_fill(removed, 0.0) / temperature + log_weights.masked_fill(removed, 0.0)
    return logits.masked_fill(removed, -torch.inf)


def without_lonely_rows(similarity: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return similarities and log-weights [B, N] with stand-ins in rows without negatives, and which those are [B].

    A row of -inf alone has no gradient in logsumexp or softmax. With zeros it has one, and is to be masked at the end.
    """
    lonely = torch.isneginf(log_weights).all(dim=1)
    return similarity.masked_fill(lonely[:, None], 0.0), log_weights.masked_fill(lonely[:, None], 0.0), lonely
