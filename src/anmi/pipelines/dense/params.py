"""Parameters of dense retrieval."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from anmi.retrieval.prompts import Prompt, Prompts


class DenseParams(BaseModel):
    """How texts are encoded, indexed and searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str | None = Field(None, description="Encoder that mines; the one that is trained when empty.")
    max_length: int = Field(256, ge=8, description="Tokens of a text and its prompt; MiniLM was trained with 256.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="bfloat16 where the processor multiplies it in hardware: three times as fast here."
    )
    batch_size: int = Field(
        64,
        ge=1,
        description="Texts per forward pass at most. On a processor long ones go fewer at a time, some 2,048 tokens, "
        "whose layers fit its caches; a large GPU takes more than 64.",
    )
    prompt_query: Prompt = Field(
        None,
        description="Put before queries in mining, training and evaluation, and kept in the trained model. None: the "
        "prompt that the encoder's folder has for them, which it was trained with; '' puts none.",
    )
    prompt_document: Prompt = Field(
        None, description="Put before documents; None is the encoder's own as for queries, '' puts none."
    )
    index: Literal["flat", "hnsw", "ivfpq"] = Field(
        "flat", description="flat is exact; the others are for large corpora."
    )
    depth: int = Field(
        100,
        ge=0,
        le=100_000,
        description="Dense candidates per query; recipes window at most the first 100. 0 leaves them to BM25, and the "
        "encoder only scores what that finds.",
    )
    random: int = Field(
        32, ge=0, le=100_000, description="Documents per query drawn from the whole corpus, for recipes that fall back "
        "on them: half of them are far enough away to serve, twice the usual 7 negatives.",
    )  # fmt: skip

    @property
    def prompts(self) -> Prompts:
        """What is put before texts by every encoder of a run that it did not train itself."""
        return Prompts(self.prompt_query, self.prompt_document)
