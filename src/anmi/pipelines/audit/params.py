"""Parameters of the audit."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.evaluation.planting import Hide, Kinds


class AuditParams(BaseModel):
    """Which truth is planted, how much is audited, and how many false negatives are too many."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: Kinds = "auto"
    hide: Hide = "half"
    queries: int = Field(500, ge=0)
    depth: int = Field(50, ge=1)
    max_false_negative_rate: float | None = Field(None, ge=0, le=1)
    recipe: str | None = None
