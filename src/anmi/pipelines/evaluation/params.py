"""Parameters of evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from anmi.corpus.hardness import ScriptHardnessParams


class HybridParams(BaseModel):
    """How BM25 and the trained retrievers become one search."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["convex", "rrf"] = "convex"
    depth: int = Field(100, ge=1, le=100_000)
    weight: float | None = Field(None, ge=0, le=1)


class EvaluationParams(BaseModel):
    """What is measured, and how sure one wants to be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: Literal["test", "dev"] = "test"
    cutoffs: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = Field((1, 5, 10, 20, 50, 100), min_length=1)
    ranked: Literal["cutoffs", "all"] = "cutoffs"
    resamples: int = Field(10_000, ge=100, le=1_000_000)
    confidence: float = Field(0.95, gt=0, lt=1)
    hardness: ScriptHardnessParams = ScriptHardnessParams()
    hybrid: HybridParams = HybridParams()
    factuality_queries: int = Field(2_000, ge=2)
    neighbours: int = Field(5, ge=1)
