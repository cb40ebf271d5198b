"""Options of training on pseudo-queries."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PseudoQueryOptions(BaseModel):
    """Which pseudo-queries are trained on beside the labelled rows, and how many of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[str, ...] = Field(
        (), description="Kinds of pseudo-queries (docs/adaptation.md); adaptation makes those. None: labels alone."
    )
    batch_size: int = Field(
        64, ge=2, description="Pseudo-queries of a step; their documents are each other's only negatives."
    )
    documents: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the documents that ask a pseudo-query of each kind in an epoch, others in each. 1: all; "
        "less where encoding takes long.",
    )
