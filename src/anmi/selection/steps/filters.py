"""Steps that reject or weigh down candidates that are unsafe as negatives, or drop queries."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from anmi.candidates import SOURCES, Candidates
from anmi.errors import nearest
from anmi.judging.expected import ExpectedShare, share_sentence
from anmi.ragged import in_rows
from anmi.selection.steps.registry import Context, Params, step
from anmi.selection.steps.routing import Route
from anmi.selection.steps.samplers import choose, places

log = logging.getLogger(__name__)

# Named by what they do: the ratio is a ceiling, so a larger one is bolder. Notes that advise 0.98
# for medical text and 0.90 for bold mining have it the wrong way round.
PRESETS: Final = {"strict": 0.90, "balanced": 0.95, "bold": 0.98}
# Those that `auto` chooses among, and the share of false negatives that the judge may expect.
RATIOS: Final = (0.90, 0.92, 0.94, 0.95, 0.96, 0.98)
_MOST_EXPECTED: Final[float] = Route.model_fields["max_expected_share"].default
_COSINES: Final = ("dense",)


class Consistency(Params):
    """What becomes of a query whose positive BM25 does not find."""

    policy: Literal["drop", "pairs", "keep"] = Field(
        "drop",
        description="`drop`: a query without any such positive. `pairs`: each positive by itself.",
    )


@step("consistency", Consistency, requires=lambda p: {"consistent"})
def consistency(block: Candidates, params: Consistency, context: Context) -> Candidates:
    """Drop or keep the queries whose positive is not in the top K of BM25 (methods §1).

    With `pairs`, as in the published miner, a positive that is not makes no row of training either;
    it is no negative all the same.
    """
    if params.policy == "keep":
        return block
    inconsistent = block.query_columns["consistent"] < 0.5
    if params.policy == "pairs":
        fails = ~(block.positive_columns["consistent"] > 0.5)
        order = np.argsort(fails, axis=1, kind="stable")
        columns = {}
        for name, measured in block.positive_columns.items():
            columns[name] = in_rows(measured, order)
        positives = in_rows(block.positives, order)
        block = replace(block, positives=positives, positive_columns=columns)
        block = block.with_columns(positive_columns={"barred": in_rows(fails, order)})
        inconsistent = np.all(fails, axis=1)
    return block.dropped("consistency", inconsistent, "BM25 does not find a positive near the top")


class Source(Params):
    """Which source a candidate must have come from."""

    source: Literal["bm25", "dense", "graph", "random"] = Field(description="Name of the source.")


@step("source", Source, requires=lambda p: {p.source} & {"bm25", "dense"})
def source(block: Candidates, params: Source, context: Context) -> Candidates:
    """Reject candidates that the named source did not retrieve."""
    is_elsewhere = (block.source & SOURCES[params.source]) == 0
    return block.rejected("source", is_elsewhere, f"not from {params.source}")


class RankWindow(Params):
    """Ranks that are kept."""

    column: str = Field(
        "dense_rank", description="Column with the rank; dense ranking is what most recipes window."
    )
    first: int = Field(1, ge=1, description="Best rank kept.")
    last: int = Field(100, ge=1, description="Worst rank kept; 100 is the usual depth.")

    @model_validator(mode="after")
    def _not_empty(self) -> RankWindow:
        if self.first > self.last:
            raise ValueError(
                f"first {self.first} lies behind last {self.last}, so no rank is inside the window"
            )
        return self


@step("rank_window", RankWindow, thresholds=("first",))
def rank_window(block: Candidates, params: RankWindow, context: Context) -> Candidates:
    """Reject candidates outside a window of ranks; an unknown rank is outside."""
    rank = block.columns[params.column]
    outside = ~((rank >= params.first) & (rank <= params.last))
    return block.rejected(
        "rank_window", outside, f"{params.column} not in {params.first}…{params.last}"
    )


class Shift(Params):
    """How many of the nearest are passed over."""

    column: str = Field(
        "dense_rank", description="Column with the rank; dense ranking is what NV-Retriever shifts."
    )
    skip: int = Field(
        10, ge=0, description="Nearest candidates passed over; NV-Retriever's Shift-10."
    )
    last: int = Field(100, ge=1, description="Worst rank kept; 100 is the usual depth.")

    @model_validator(mode="after")
    def _not_empty(self) -> Shift:
        if self.skip >= self.last:
            raise ValueError(
                f"skip {self.skip} passes over every rank up to last {self.last}; skip fewer"
            )
        return self


@step("shift", Shift, thresholds=("skip",))
def shift(block: Candidates, params: Shift, context: Context) -> Candidates:
    """Reject the nearest N candidates, and those beyond a rank (Shift-N; methods §6).

    Only candidates count, and a positive is not one: with a positive on rank 3, Shift-10 passes
    over the ranks up to 11. What an earlier step rejected counts, since the shift is defined on the
    ranking. Ties in rank go by document.
    """
    rank = block.columns[params.column]
    known_rank = np.nan_to_num(rank, nan=np.inf)
    ranked = np.where(block.filled, known_rank, np.inf)
    place = places(block.documents, ranked)
    block = block.rejected(
        "shift", place < params.skip, f"among the first {params.skip} by {params.column}"
    )
    return block.rejected(
        "shift", ~(rank <= params.last), f"{params.column} > {params.last} or unknown"
    )


class Denoise(Params):
    """Bar on the judged probability of relevance."""

    column: str = Field(
        "p_relevant", description="Calibrated probability; `p_cross` is the cross-encoder's own."
    )
    threshold: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Reject from it on. 0.3: medicine, law; 0.7: complete labels.",
    )
    unjudged: Literal["reject", "keep"] = Field(
        "reject",
        description="A candidate nobody judged is not known to be clean, so it is not used.",
    )
    at_least: int = Field(
        0,
        ge=0,
        description="Judged candidates kept per row in any case, those doubted least; 0 is strict.",
    )


@step("denoise", Denoise, thresholds=("threshold",))
def denoise(block: Candidates, params: Denoise, context: Context) -> Candidates:
    """Reject candidates that the judge calls relevant (RocketQA; methods §3.1)."""
    probability = block.columns[params.column]
    if params.unjudged == "reject":
        block = block.rejected("unjudged", np.isnan(probability), "no judge saw it", "unsafe")
    doubt = np.where(block.undecided & np.isfinite(probability), probability, np.inf)
    wrong = (probability >= params.threshold) & (places(doubt) >= params.at_least)
    return block.rejected(
        "denoise", wrong, f"{params.column} ≥ {params.threshold:.3g}", "unsafe", in_batch=True
    )


class MinWeight(Params):
    """Bar on the weight."""

    weight: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="Candidates at or below it teach next to nothing.",
    )


@step("min_weight", MinWeight, thresholds=("weight",))
def min_weight(block: Candidates, params: MinWeight, context: Context) -> Candidates:
    """Reject candidates whose weight has fallen to the bar or below."""
    return block.rejected(
        "min_weight",
        ~(block.weight > params.weight),
        f"weight ≤ {params.weight:g}",
    )


@step("duplicate_guard", requires=lambda p: {"related"})
def duplicate_guard(block: Candidates, params: Params, context: Context) -> Candidates:
    """Reject near-duplicates and siblings of any positive of the query, as ingestion found them."""
    for code, name, rule in (
        (1, "near_duplicate", "almost the same text as a positive"),
        (2, "sibling", "part of the same document as a positive"),
    ):
        is_related = block.columns["related"] == code
        block = block.rejected(name, is_related, rule, "unsafe", in_batch=True)
    return block


class MaxScore(Params):
    """A ceiling that is the same for all queries."""

    column: str = Field("dense", description="Score that is compared.")
    max_score: float = Field(
        0.7, description="Keep candidates below it; 0.7 is NV-Retriever's for cosines."
    )


@step("max_score", MaxScore, thresholds=("max_score",))
def max_score(block: Candidates, params: MaxScore, context: Context) -> Candidates:
    """Keep s < ceiling, whatever the positive's score (NV-Retriever's TopK-Abs; methods §6)."""
    rule = f"{params.column} ≥ {params.max_score:g}"
    return block.rejected(
        "max_score",
        ~(block.columns[params.column] < params.max_score),
        rule,
        "unsafe",
    )


class MaxRatio(Params):
    """Ceiling relative to the positive's score."""

    column: str = Field("dense", description="Score that is compared.")
    max_ratio: Annotated[float, Field(gt=0, le=1.5)] | Literal["auto"] = Field(
        0.95,
        description=(
            "Share of the positive's score, `strict` (0.90), `balanced` or `bold` (0.98); `auto`:"
            " the largest of 0.90 to 0.98 at which the judge expects at most 1.5 % false negatives."
        ),
    )
    adaptive: bool = Field(
        False, description="By the positive's cosine: 0.02 less above 0.9, 0.03 more below 0.7."
    )

    @field_validator("max_ratio", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        names = (*PRESETS, "auto")
        if value not in names and not value.replace(".", "", 1).isdigit():
            raise ValueError(
                f'there is no preset "{value}"; {nearest(value, names)}, or give a number'
            )
        return PRESETS.get(value, value)

    @model_validator(mode="after")
    def _adapts_to_cosines(self) -> MaxRatio:
        if self.adaptive and self.column not in _COSINES:
            raise ValueError(
                f'adaptive goes by cosines of 0.7 and 0.9, which "{self.column}" does not hold;'
                " leave it"
            )
        return self


def fit_max_ratio(
    blocks: Iterable[Candidates],
    params: MaxRatio,
    context: Context,
) -> tuple[float, str]:
    """Return the ratio, and why it was chosen.

    `auto` is the largest ratio whose nearest candidates below it the judge expects to hold no more
    relevant ones than ``route`` allows by default; the smallest, with a warning, where none is.
    """
    if params.max_ratio != "auto":
        return params.max_ratio, ""
    shares = {ratio: ExpectedShare() for ratio in RATIOS}
    for block in blocks:
        scores = block.columns[params.column]
        for ratio, share in shares.items():
            below = _below(block, params, ratio)
            is_negative = choose(below, scores, max(context.negatives, 1)).negatives
            probability = np.where(is_negative, block.columns["p_relevant"], np.nan)
            share.add(probability, block.query_ids)
    allowed = [ratio for ratio in RATIOS if shares[ratio].share <= _MOST_EXPECTED]
    ratio = max(allowed, default=RATIOS[0])
    expected = share_sentence(shares[ratio].share, *shares[ratio].interval)
    sentence = "max_ratio: auto takes %g; expected share of false negatives %s"
    log.log(logging.INFO if allowed else logging.WARNING, sentence, ratio, expected)
    return ratio, f", chosen at an expected share of false negatives of {expected}"


@step(
    "max_ratio",
    MaxRatio,
    fit=fit_max_ratio,
    thresholds=("max_ratio",),
    requires=lambda p: {p.column, "p_relevant"} if p.max_ratio == "auto" else {p.column},
)
def max_ratio(block: Candidates, params: MaxRatio, context: Context) -> Candidates:
    """Keep s < s⁺ − |s⁺|(1 − p) for the ratio p (NV-Retriever's TopK-PercPos; methods §3.2).

    For positive scores this is s < p·s⁺; in this form the rule keeps its direction for negative
    ones. On the column ``elo`` it is the published Elo form, gap / Elo⁺ > 1 − p, as long as Elo⁺ >
    0, that is for every strength above −5. Below that the published form turns round and this one
    does not.
    """
    fitted = context.fitted or (params.max_ratio,)
    return _below(block, params, *fitted)


def _below(
    block: Candidates,
    params: MaxRatio,
    ratio: float,
    reason: str = "",
) -> Candidates:
    """Reject what is not below the ratio."""
    positive = block.positive_columns[params.column][:, :1]
    ratios = np.full_like(positive, ratio, dtype=np.float64)
    adapted = ""
    if params.adaptive:
        ratios[positive > 0.9] -= 0.02
        ratios[positive < 0.7] = max(ratio, min(ratio + 0.03, 1.0))
        adapted = ", adapted"
    ceiling = positive - np.abs(positive) * (1 - ratios)
    rule = f"{params.column} ≥ {ratio:g}{adapted} of the positive's{reason}"
    is_below = block.columns[params.column] < ceiling
    return block.rejected("max_ratio", ~is_below, rule, "unsafe")


class Margin(Params):
    """Distance below the positive's score."""

    column: str = Field("dense", description="Score that is compared.")
    margin: float = Field(
        0.05, ge=0, description="Least distance below the positive; 0.05 is NV-Retriever's."
    )


@step("margin", Margin, thresholds=("margin",))
def margin(block: Candidates, params: Margin, context: Context) -> Candidates:
    """Keep s < s⁺ − margin (NV-Retriever's TopK-MarginPos; methods §3.2)."""
    positive = block.positive_columns[params.column][:, :1]
    is_below = block.columns[params.column] < positive - params.margin
    rule = f"{params.column} ≥ the positive's − {params.margin:g}"
    return block.rejected("margin", ~is_below, rule, "unsafe")


class Confidence(Params):
    """How the judged probability becomes a weight."""

    column: str = Field(
        "p_relevant", description="Calibrated probability; `p_cross` is the cross-encoder's own."
    )


@step("confidence", Confidence)
def confidence(block: Candidates, params: Confidence, context: Context) -> Candidates:
    """Multiply the weight by 1 − P(relevant), by ½ where nobody judged (methods §3.1)."""
    trust = np.nan_to_num(1.0 - block.columns[params.column], nan=0.5)
    return replace(block, weight=(block.weight * trust).astype(np.float32))
