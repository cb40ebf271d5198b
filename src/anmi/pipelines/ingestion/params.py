"""Parameters of ingestion."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class IngestionParams(BaseModel):
    """How a collection is read, split and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_docs_queries: int = Field(
        500, ge=0, description="Training queries of the built-in collection, chosen by hash; 0 takes all. 500 keep "
        "the default run within its six minutes on two cores.",
    )  # fmt: skip
    max_queries: int = Field(0, ge=0, description="Cap on training queries of any collection, chosen by hash; 0: none.")
    max_quarantine: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of damaged rows above which the run stops; 1 % is noise, more is a wrong file.",
    )
    dev_share: float = Field(0.15, gt=0, lt=1, description="Of train, where a collection has no dev split.")
    test_share: float = Field(0.2, gt=0, lt=1, description="Of train, where a collection has no test split.")
    language: str | None = Field(None, description="ISO 639-1 code; recognised from a sample of documents when empty.")
