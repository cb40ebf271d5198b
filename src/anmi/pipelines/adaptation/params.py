"""Parameters of adaptation."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.adaptation.filters import FilterOptions
from anmi.adaptation.views import QuestionOptions
from anmi.judging.endpoint import EndpointOptions


class WriterOptions(EndpointOptions):
    """Which language model writes pseudo-queries of kind llm."""

    max_tokens: int | None = Field(512, ge=1)
    max_characters: int = Field(4000, ge=100)
    budget: int = Field(1000, ge=0)


class AdaptationParams(BaseModel):
    """How documents ask for themselves; of which kinds the recipe says (`training.options.pseudo_queries.kinds`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    views: int = Field(5, ge=1, le=100)
    max_documents: int = Field(100_000, ge=1)
    question: QuestionOptions = QuestionOptions()
    llm: WriterOptions | None = None
    filters: FilterOptions = FilterOptions()
