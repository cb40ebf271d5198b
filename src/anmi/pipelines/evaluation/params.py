"""Parameters of evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from anmi.corpus.hardness import ScriptHardnessParams


class HybridParams(BaseModel):
    """How BM25 and the trained retrievers become one search."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["convex", "rrf"] = Field(
        "convex", description="convex: a weighted sum of scores; at its best weight nDCG@10 was .10 higher than that "
        "of rrf (reciprocal rank fusion), the mean of dev queries of four collections with two encoders each.",
    )  # fmt: skip
    depth: int = Field(
        100, ge=1, le=100_000, description="Best documents of each part that are fused; 1,000 brought .001 more. Dev "
        "queries are ranked 100 deep, so the weight is fitted on no more.",
    )  # fmt: skip
    weight: float | None = Field(
        None, ge=0, le=1, description="Of the trained retriever's scores, or of a dense and a sparse one, half for "
        "each; the rest is BM25's. null: fitted on dev queries, if there are 30 only on those whose documents "
        "training saw no query of, since what was trained would seem too good on the others; without any, all parts "
        "count the same.",
    )  # fmt: skip


class EvaluationParams(BaseModel):
    """What is measured, and how sure one wants to be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: Literal["test", "dev"] = Field("test", description="dev while settings are being chosen, test in the end.")
    cutoffs: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = Field(
        (1, 5, 10, 20, 50, 100), min_length=1, description="k of all metrics; at least one."
    )
    ranked: Literal["cutoffs", "all"] = Field(
        "cutoffs", description="How deep all systems rank. cutoffs: as far as the largest of them, all that metrics "
        "other than ranks need. all: the whole corpus, so that no query is left out of that; for small corpora.",
    )  # fmt: skip
    resamples: int = Field(
        10_000, ge=100, le=1_000_000, description="Of bootstrap and permutation; gives p-values to about 0.01."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Of the intervals.")
    hardness: ScriptHardnessParams = Field(
        ScriptHardnessParams(),
        description="What makes a query hard, for results by hardness. By script, which needs nothing installed; "
        "`code_mix: language` sees other languages of the same script as well.",
    )
    hybrid: HybridParams = Field(HybridParams(), description="The search that is deployed, and the system hybrid.")
    factuality_queries: int = Field(
        2_000, ge=2, description="Queries whose documents are compared with false variants, where the collection has "
        "a graph; a share of one half is then known to 0.02.",
    )  # fmt: skip
    neighbours: int = Field(5, ge=1, description="Nearest documents looked at; a page of results shows about as many.")
