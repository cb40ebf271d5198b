"""Steps that reject candidates, or whole queries, that are not safe or not wanted as negatives."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from anmi.candidates import SOURCES, Candidates
from anmi.selection.steps.registry import Context, Params, step

# What an audit tries.


class Consistency(Params):
    """What becomes of a query whose positive BM25 does not find."""

    policy: Literal["drop", "keep"] = Field("drop", description="`drop` is what the published filter does.")


@step("consistency", Consistency, requires=lambda p: {"consistent"})
def consistency(block: Candidates, params: Consistency, context: Context) -> Candidates:
    """Drop or keep the queries whose positive is not in the top K of BM25 (methods §1)."""
    if params.policy == "keep":
        return block
    inconsistent = block.query_columns["consistent"] < 0.5
    return block.dropped("consistency", inconsistent, "BM25 does not find a positive near the top")


class Source(Params):
    """Which source a candidate must have come from."""

    source: Literal["bm25", "dense", "graph", "random"] = Field(description="Name of the source.")


@step("source", Source, requires=lambda p: {p.source} & {"bm25", "dense"})
def source(block: Candidates, params: Source, context: Context) -> Candidates:
    """Reject candidates that the named source did not retrieve."""
    return block.rejected("source", (block.source & SOURCES[params.source]) == 0, f"not from {params.source}")


class RankWindow(Params):
    """Ranks that are kept."""

    column: str = Field("dense_rank", description="Column with the rank; dense ranking is what most recipes window.")
    first: int = Field(1, ge=1, description="Best rank kept.")
    last: int = Field(100, ge=1, description="Worst rank kept; 100 is the usual depth.")

    @model_validator(mode="after")
    def _not_empty(self) -> RankWindow:
        if self.first > self.last:
            raise ValueError(f"first {self.first} lies behind last {self.last}, so no rank is inside the window")
        return self


@step("rank_window", RankWindow, requires=lambda p: {p.column}, thresholds=("first",))
def rank_window(block: Candidates, params: RankWindow, context: Context) -> Candidates:
    """Reject candidates outside a window of ranks; an unknown rank is outside."""
    rank = block.columns[params.column]
    outside = ~((rank >= params.first) & (rank <= params.last))
    return block.rejected("rank_window", outside, f"{params.column} not in {params.first}…{params.last}")


class Shift(Params):
    """How many of the nearest are passed over."""

    column: str = Field("dense_rank", description="Column with the rank; dense ranking is what NV-Retriever shifts.")
    skip: int = Field(10, ge=0, description="Nearest candidates passed over; NV-Retriever's Shift-10.")
    last: int = Field(100, ge=1, description="Worst rank kept; 100 is the usual depth.")

    @model_validator(mode="after")
    def _not_empty(self) -> Shift:
        if self.skip >= self.last:
            raise ValueError(f"skip {self.skip} passes over every rank up to last {self.last}; skip fewer")
        return self


@step("shift", Shift, requires=lambda p: {p.column}, thresholds=("skip",))
def shift(block: Candidates, params: Shift, context: Context) -> Candidates:
    """Reject the nearest N candidates of each row, and those beyond a rank (NV-Retriever's Shift-N; methods §6).

    Counted are candidates, of which no positive is one: with a positive on rank 3, Shift-10 passes over the ranks up
    to 11. What an earlier step has rejected counts, since the shift is one in the ranking. Ties in rank go by document.
    """
    rank = block.columns[params.column]
    ranked = np.where(block.filled, np.nan_to_num(rank, nan=np.inf), np.inf)
    order = np.lexsort((block.documents, ranked), axis=1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
    block = block.rejected("shift", place < params.skip, f"among the first {params.skip} by {params.column}")
    return block.rejected("shift", ~(rank <= params.last), f"{params.column} > {params.last} or unknown")


class Denoise(Params):
    """Bar on the judged probability of relevance."""

    column: str = Field(
        "p_relevant",
        description="Calibrated probability of relevance that is compared; `p_cross` is the cross-encoder's.",
    )
    threshold: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Reject at or above it. The report has 0.5 as balanced, 0.3 for medicine and law, 0.7 where labels "
        "are nearly complete.",
    )
    unjudged: Literal["reject", "keep"] = Field(
        "reject", description="A candidate nobody judged is not known to be clean, so it is not used."
    )
    at_least: int = Field(
        0,
        ge=0,
        description="Judged candidates kept per row in any case, those doubted least, so that no row is lost; 0 is "
        "strict.",
    )


@step("denoise", Denoise, requires=lambda p: {p.column}, thresholds=("threshold",))
def denoise(block: Candidates, params: Denoise, context: Context) -> Candidates:
    """Reject candidates that the judge calls relevant (RocketQA; methods §3.1)."""
    probability = block.columns[params.column]
    if params.unjudged == "reject":
        block = block.rejected("unjudged", np.isnan(probability), "no judge saw it", "unsafe")
    doubt = np.where(block.undecided & np.isfinite(probability), probability, np.inf)
    place = np.argsort(np.argsort(doubt, axis=1, kind="stable"), axis=1)
    wrong = (probability >= params.threshold) & (place >= params.at_least)
    return block.rejected("denoise", wrong, f"{params.column} ≥ {params.threshold:.3g}", "unsafe", in_batch=True)


class MinWeight(Params):
    """Bar on the weight."""

    weight: float = Field(0.1, ge=0, lt=1, description="Candidates at or below it teach next to nothing.")


@step("min_weight", MinWeight, thresholds=("weight",))
def min_weight(block: Candidates, params: MinWeight, context: Context) -> Candidates:
    """Reject candidates whose weight has fallen to the bar or below."""
    return block.rejected("min_weight", ~(block.weight > params.weight), f"weight ≤ {params.weight:g}")
