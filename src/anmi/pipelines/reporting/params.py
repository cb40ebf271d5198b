"""Parameters of reporting."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ReportingParams(BaseModel):
    """What the report shows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queries: int = Field(
        5000, ge=0, le=5000,
        description="Most rows of the table of queries; more make a page of over 6 MB. 0 leaves the table out.",
    )  # fmt: skip
