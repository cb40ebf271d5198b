"""Parameters of lexical retrieval."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from anmi.retrieval.tokenize import TokenizerName


class BM25Params(BaseModel):
    """How the corpus is indexed and how deep it is searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["bm25s", "rank_bm25"] = Field("bm25s", description="rank_bm25 is slow and serves for comparison.")
    tokenizer: TokenizerName = Field(
        "auto", description="auto | snowball | kiwi | jieba | ngram | subword | whitespace."
    )
    k1: float = Field(0.9, ge=0, description="Saturation of term frequency; 0.9 is Anserini's and BEIR's.")
    b: float = Field(0.4, ge=0, le=1, description="Length normalisation; 0.4 is Anserini's and BEIR's.")
    epsilon: float = Field(
        0.0,
        ge=0,
        description="Of rank_bm25: idf of terms in more than half of the documents, as a share of the mean idf. 0: "
        "what bm25s gives them; 0.25 is that library's own.",
    )
    depth: int = Field(
        100,
        ge=1,
        le=100_000,
        description="Candidates per query. 100, since the default recipe takes negatives by nearness, and deeper ones "
        "would be judged for nothing; recipes that draw from deeper say so.",
    )
    shard: int = Field(512, ge=1, description="Queries per shard; bounds memory, never changes a result.")

    @model_validator(mode="after")
    def _only_one_has_it(self) -> BM25Params:
        if self.epsilon and self.engine != "rank_bm25":
            raise ValueError(f'epsilon is a setting of rank_bm25, and the engine is "{self.engine}"; leave it out')
        return self
