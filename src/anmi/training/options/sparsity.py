"""Options of the penalty on the terms of documents."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SparsityOptions(BaseModel):
    """How much the terms of documents cost: FLOPS (Paria et al. 2020), see methods 5c."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: float = Field(
        1e-4,
        ge=0,
        description="λ of the penalty: the sum over terms of their squared mean weight in a batch of documents. 1e-4: "
        "tables that begin as BM25 are sparse already, where the paper's networks (.05) are not.",
    )
    steps: int = Field(200, ge=1, description="Steps over which λ rises quadratically from 0. 200: the paper's.")
