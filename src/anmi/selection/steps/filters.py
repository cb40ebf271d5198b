"""Steps that reject candidates, or whole queries, that are not safe or not wanted as negatives."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from anmi.candidates import OPEN, SOURCES, Candidates
from anmi.errors import AnmiError, nearest
from anmi.judging.targets import Target, threshold_for
from anmi.selection.steps.registry import Context, Params, Threshold, step

log = logging.getLogger(__name__)
# What an audit tries.
_FIRST_RANK = Threshold("first", (1, 2, 5, 10, 20, 30, 50, 80))
_SKIP = Threshold("skip", (0, 1, 2, 5, 10, 20, 30, 50, 80))
_PROBABILITY = Threshold("threshold", (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9))
_RATE = Threshold("max_false_negative_rate", (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3))
_WEIGHT = Threshold("weight", (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9))
# Of methods §3.1.
THRESHOLDS: Final = {"conservative": 0.3, "balanced": 0.5, "curated": 0.7}
# Of the usual 100 candidates a query, less than 10 no longer fill 7 negatives with any choice.
_LITTLE: Final = 0.1


class Consistency(Params):
    """What becomes of a query whose positive BM25 does not find."""

    policy: Literal["drop", "downweight", "keep"] = Field(
        "drop", description="`drop` is what the published filter does."
    )
    weight: float = Field(0.5, ge=0, le=1, description="Weight of such a query under `downweight`; ½ halves its pull.")


@step("consistency", Consistency, requires=lambda p: {"consistent"})
def consistency(block: Candidates, params: Consistency, context: Context) -> Candidates:
    """Drop, down-weight or keep the queries whose positive is not in the top K of BM25 (methods §1)."""
    inconsistent = block.query_columns["consistent"] < 0.5
    if params.policy == "drop":
        return block.dropped("consistency", inconsistent, "BM25 does not find a positive near the top")
    if params.policy == "downweight":
        return block.with_columns(query_columns={"weight": np.where(inconsistent, params.weight, 1.0)})
    return block


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


@step("rank_window", RankWindow, requires=lambda p: {p.column}, thresholds=(_FIRST_RANK,))
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


@step("shift", Shift, requires=lambda p: {p.column}, thresholds=(_SKIP,))
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
    """Bar on the judged probability of relevance, given as it is or by what it may let pass."""

    column: str = Field(
        "p_relevant",
        description="Calibrated probability of relevance that is compared; `p_cross` is the cross-encoder's.",
    )
    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Reject at or above it: a number, or `conservative` (0.3, as for medicine and law), `balanced` "
        "(0.5) or `curated` (0.7, where labels are nearly complete). None is 0.5, unless "
        "`max_false_negative_rate` finds it.",
    )
    max_false_negative_rate: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Find the threshold: the highest that at most this share of the held-out known positives stays "
        "below. None, as it needs a judge that held them out.",
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

    @field_validator("threshold", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in THRESHOLDS and not value.replace(".", "", 1).isdigit():
            raise ValueError(f'there is no preset "{value}"; {nearest(value, THRESHOLDS)}, or give a number')
        return THRESHOLDS.get(value, value) if isinstance(value, str) else value

    @field_validator("max_false_negative_rate")
    @classmethod
    def _instead_of_threshold(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("threshold") is not None:
            raise ValueError("threshold and max_false_negative_rate exclude each other; give one of them")
        return value


def fit_denoise(blocks: Iterable[Candidates], params: Denoise, context: Context) -> Target | None:
    """Find the threshold that meets ``max_false_negative_rate``; None where none is asked for or nothing is judged.

    Known positives stand in for the unknown ones: what a judge that held a positive out says of it (``p_heldout``,
    or the cross-fitted ``p_relevant`` where there is no such column) is what it would have said had it been an
    unlabelled candidate. Counted are the own positives of the rows still kept, each once, and as the others the
    candidates still in play.

    Raises
    ------
    AnmiError
        When no positive was held out.
    """
    if params.max_false_negative_rate is None:
        return None
    heldout, others = [np.zeros(0, np.float32)], [np.zeros(0, np.float32)]
    for block in blocks:
        judged = block.positive_columns.get(params.column)
        if params.column == "p_relevant":
            judged = block.positive_columns.get("p_heldout", judged)
        if judged is not None:
            heldout.append(judged[block.query_verdict == OPEN, 0])
        others.append(block.columns[params.column][block.undecided])
    positive, other = (values[np.isfinite(values)] for values in map(np.concatenate, (heldout, others)))
    if not len(positive):
        raise AnmiError(
            "denoise: no known positive was judged by a model that had not seen it, so max_false_negative_rate "
            f"{params.max_false_negative_rate:g} has nothing to be measured on; give a threshold instead"
        )
    if not len(other):
        log.warning("denoise: no candidate was judged, so there is nothing to find a threshold for")
        return None
    probabilities = np.concatenate([positive, other])
    labels = np.repeat([1, 0], [len(positive), len(other)])
    found = threshold_for(probabilities, labels, params.max_false_negative_rate)
    log.info(
        "denoise: rejects P ≥ %.3g, so %.1f %% (%.1f–%.1f %%) of %d held-out positives would pass as negatives; "
        "%.1f %% of the judged candidates stay",
        found.threshold,
        *(100 * share for share in (found.rate, found.low, found.high)),
        found.positives,
        100 * found.kept_share,
    )
    if found.kept_share < _LITTLE:
        log.warning(
            "denoise: the judge hardly tells held-out positives from candidates, so little is left to draw from; "
            "allow a higher max_false_negative_rate, give a threshold, or judge with more evidence"
        )
    return found


@step(
    "denoise",
    Denoise,
    requires=lambda p: {p.column},
    fit=fit_denoise,
    thresholds=(_PROBABILITY, _RATE),
)
def denoise(block: Candidates, params: Denoise, context: Context) -> Candidates:
    """Reject candidates that the judge calls relevant (RocketQA; methods §3.1)."""
    probability = block.columns[params.column]
    fitted: Target | None = context.fitted
    threshold = params.threshold or 0.5 if fitted is None else fitted.threshold
    if params.unjudged == "reject":
        block = block.rejected("unjudged", np.isnan(probability), "no judge saw it", "unsafe")
    doubt = np.where(block.undecided & np.isfinite(probability), probability, np.inf)
    place = np.argsort(np.argsort(doubt, axis=1, kind="stable"), axis=1)
    wrong = (probability >= threshold) & (place >= params.at_least)
    return block.rejected("denoise", wrong, f"{params.column} ≥ {threshold:.3g}", "unsafe", in_batch=True)


class MinWeight(Params):
    """Bar on the weight."""

    weight: float = Field(0.1, ge=0, lt=1, description="Candidates at or below it teach next to nothing.")


@step("min_weight", MinWeight, thresholds=(_WEIGHT,))
def min_weight(block: Candidates, params: MinWeight, context: Context) -> Candidates:
    """Reject candidates whose weight has fallen to the bar or below."""
    return block.rejected("min_weight", ~(block.weight > params.weight), f"weight ≤ {params.weight:g}")


class MinNegatives(Params):
    """Rows with too few negatives."""

    count: int = Field(1, ge=1, description="A row with fewer undecided candidates is dropped; 1 keeps all that teach.")


@step("min_negatives", MinNegatives)
def min_negatives(block: Candidates, params: MinNegatives, context: Context) -> Candidates:
    """Drop rows that have too few candidates left to draw from."""
    few = block.undecided.sum(axis=1) < params.count
    return block.dropped("min_negatives", few, f"fewer than {params.count} candidates left")
