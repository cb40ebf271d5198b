"""The scoring head of a cross-encoder that starts from a bi-encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class SegmentSimilarity(nn.Module):
    """Similarity of query and document within their joint encoding: scale · Σ wₖ ûₖ v̂ₖ + bias.

    û and v̂ are the normalised means of the token vectors of either segment. Both were computed with the other one in
    sight, so this is a cross-encoder; but it starts where the bi-encoder's own mean pooling left off. A fresh
    classifier on [CLS], which MiniLM never trained, stays near chance after the few hundred pairs a small collection
    has. The start is what helps: whether training adds to it has not been shown.

    Parameters
    ----------
    width
        Dimensions of the token vectors.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.bias = nn.Parameter(torch.tensor(-3.0))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``scores`` [B, 1] to features that hold ``token_embeddings`` [B, L, D] and segment ids."""
        tokens, present, segment = (features[name] for name in ("token_embeddings", "attention_mask", "token_type_ids"))
        query, document = (self._mean(tokens.float(), present * (segment == part)) for part in (0, 1))
        scores = self.scale * (self.weight * query * document).sum(dim=-1) + self.bias
        return features | {"scores": scores.unsqueeze(1)}

    @staticmethod
    def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
        share = mask.unsqueeze(-1).float()
        return functional.normalize((tokens * share).sum(dim=1) / share.sum(dim=1).clamp(min=1.0), dim=-1)
