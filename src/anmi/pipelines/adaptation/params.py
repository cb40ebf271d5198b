"""Parameters of adaptation."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.adaptation.filters import FilterOptions
from anmi.adaptation.views import QuestionOptions


class AdaptationParams(BaseModel):
    """How documents ask for themselves; of which kinds the recipe says (`training.pseudo_queries.kinds`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    views: int = Field(
        5, ge=1, le=100, description="Pseudo-queries of a kind and document; an epoch takes the next one. As many as a "
        "training has epochs.",
    )  # fmt: skip
    held_out: float = Field(
        0.1, ge=0, lt=1, description="Share of the documents that no pseudo-query of training is made of, to measure "
        "what a model does with documents that came after it. Half of it asks for dev, half for test, where nobody "
        "labelled any. 0 adapts to all, and measures nothing of the kind.",
    )  # fmt: skip
    max_documents: int = Field(
        100_000, ge=1, description="Documents that ask, chosen by a hash. Five views of so many are a gigabyte or two."
    )
    question: QuestionOptions = Field(
        QuestionOptions(), description="What the kind question reads; documents whose metadata lack it ask none."
    )
    filters: FilterOptions = Field(FilterOptions(), description="What a pseudo-query has to be like.")
