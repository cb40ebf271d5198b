"""Parameters of the consistency filter."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ConsistencyParams(BaseModel):
    """When a query and its positive agree."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    top: int = Field(10, ge=1)
