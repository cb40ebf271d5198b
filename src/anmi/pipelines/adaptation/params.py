"""Parameters of adaptation."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.adaptation.filters import FilterOptions
from anmi.adaptation.views import QuestionOptions
from anmi.judging.endpoint import EndpointOptions


class WriterOptions(EndpointOptions):
    """Which language model writes pseudo-queries of kind llm."""

    max_tokens: int | None = Field(
        512, ge=1, description="Length of the answer. 512: five queries and some to spare, in any language."
    )
    max_characters: int = Field(
        4000, ge=100, description="Of a document that are shown, the rest is cut: about 1,000 tokens, enough to tell "
        "what it is about.",
    )  # fmt: skip
    budget: int = Field(
        1000, ge=0, description="Documents that it is asked about, chosen by a hash, one call each; answers are stored "
        "and asked for once. 1000: some minutes, and cents with small models.",
    )  # fmt: skip


class AdaptationParams(BaseModel):
    """How documents ask for themselves; of which kinds the recipe says (`training.options.pseudo_queries.kinds`)."""

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
    llm: WriterOptions | None = Field(
        None, description="The chat endpoint that the kind llm asks. None: every document is paid for."
    )
    filters: FilterOptions = Field(FilterOptions(), description="What a pseudo-query has to be like.")
