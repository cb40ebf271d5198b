"""Parameters of lexical retrieval."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from anmi.retrieval.tokenize import TokenizerName


class BM25Params(BaseModel):
    """How the corpus is indexed and how deep it is searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["bm25s", "rank_bm25"] = "bm25s"
    tokenizer: TokenizerName = "auto"
    k1: float = Field(0.9, ge=0)
    b: float = Field(0.4, ge=0, le=1)
    epsilon: float = Field(0.0, ge=0)
    depth: int = Field(100, ge=1, le=100_000)
    shard: int = Field(512, ge=1)

    @model_validator(mode="after")
    def _only_one_has_it(self) -> BM25Params:
        if self.epsilon and self.engine != "rank_bm25":
            raise ValueError(f'epsilon is a setting of rank_bm25, and the engine is "{self.engine}"; leave it out')
        return self
