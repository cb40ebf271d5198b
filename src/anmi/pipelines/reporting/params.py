"""Parameters of reporting."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ReportingParams(BaseModel):
    """What the report shows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    examples: int = Field(10, ge=0, le=200, description="Queries shown with their negatives; enough to get a feeling.")
