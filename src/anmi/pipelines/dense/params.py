"""Parameters of dense retrieval."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from anmi.retrieval.prompts import Prompt, Prompts


class DenseParams(BaseModel):
    """How texts are encoded, indexed and searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str | None = None
    max_length: int = Field(256, ge=8)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    batch_size: int = Field(64, ge=1)
    prompt_query: Prompt = None
    prompt_document: Prompt = None
    index: Literal["flat", "hnsw", "ivfpq"] = "flat"
    depth: int = Field(100, ge=0, le=100_000)
    random: int = Field(32, ge=0, le=100_000)
    positives: int = Field(8, ge=1)

    @property
    def prompts(self) -> Prompts:
        """What is put before texts by every encoder of a run that it did not train itself."""
        return Prompts(self.prompt_query, self.prompt_document)
