"""Parameters of ingestion."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from anmi.corpus.language import language_code
from anmi.corpus.raw import Column
from anmi.errors import AnmiError


class IngestionParams(BaseModel):
    """How a collection is read, split and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_docs_queries: int = Field(500, ge=0)
    max_queries: int = Field(0, ge=0)
    max_quarantine: float = Field(0.01, ge=0, le=1)
    dev_share: float = Field(0.15, gt=0, lt=1)
    test_share: float = Field(0.2, gt=0, lt=1)
    passages: Literal["auto", "none"] | Annotated[int, Field(ge=20)] = "auto"
    new_queries: int = Field(100, ge=0)
    language: str | None = None
    marks: str | None = Field(None, min_length=1)
    columns: dict[Column, str] = Field(default={})
    near_similarity: float = Field(0.9, gt=0, le=1)
    near_least_words: int = Field(50, ge=1)
    name_share: float = Field(0.01, ge=0, le=1)
    sibling_keys: list[str] = Field(default=["parent_id", "parent", "document_id", "document", "doc_id"])

    @field_validator("language")
    @classmethod
    def _is_known(cls, given: str | None) -> str | None:
        try:
            return language_code(given) if given else None
        except AnmiError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        """Fail before a file is read."""
        if self.dev_share + self.test_share >= 1:
            raise ValueError(
                f"dev_share {self.dev_share:g} and test_share {self.test_share:g} leave nothing to train on; lower them"
            )
        return self
