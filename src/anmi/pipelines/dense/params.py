"""Parameters of dense retrieval."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DenseParams(BaseModel):
    """How texts are encoded, indexed and searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str | None = Field(None, description="Encoder that mines; the one that is trained when empty.")
    max_length: int = Field(256, ge=8, description="Tokens per text; MiniLM was trained with 256.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="bfloat16 where the processor multiplies it in hardware: three times as fast here."
    )
    batch_size: int = Field(64, ge=1, description="Texts per forward pass.")
    prompt_query: str = Field("", description="Put before queries, for encoders trained with a prompt.")
    prompt_document: str = Field("", description="Put before documents, for encoders trained with a prompt.")
    index: Literal["flat", "hnsw", "ivfpq"] = Field(
        "flat", description="flat is exact; the others are for large corpora."
    )
    depth: int = Field(
        100, ge=1, le=100_000, description="Dense candidates per query; recipes window at most the first 100."
    )
    random: int = Field(
        32, ge=0, le=100_000, description="Documents per query drawn from the whole corpus, for recipes that fall back "
        "on them: half of them are far enough away to serve, twice the usual 7 negatives.",
    )  # fmt: skip
