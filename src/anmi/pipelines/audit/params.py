"""Parameters of the audit."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.evaluation.planting import Hide, Kinds


class AuditParams(BaseModel):
    """Which truth is planted, how much is audited, and how many false negatives are too many."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: Kinds = Field(
        "auto", description="hidden (known positives) | equivalents | auto: all that the collection offers."
    )
    hide: Hide = Field(
        "half",
        description="Of a query's known positives `half` (rounded down) are hidden, so that the judge learns from the "
        "rest as it does in a run, or `all_but_one`, which is harder: there is no query with several positives left to "
        "learn from.",
    )
    queries: int = Field(
        500, ge=0, description="Most queries audited, chosen by hash; 0: all. 500 times 7 negatives give a rate of "
        "1 % to within 0.4 %, in minutes on two cores.",
    )  # fmt: skip
    depth: int = Field(
        50, ge=1, description="Dense rank to which judges are measured; among all candidates most are easy for any."
    )
    max_false_negative_rate: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The run fails when audit.recipe has more false negatives, by the estimate; None only measures.",
    )
    recipe: str | None = Field(
        None, description="The recipe that max_false_negative_rate is about; the run's own when empty."
    )
