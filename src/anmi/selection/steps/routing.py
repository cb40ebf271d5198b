"""Three ways for a judged candidate: negative, uncertain, or promoted to positive."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field, model_validator

from anmi import seeds
from anmi.candidates import GRADE, OPEN, Candidates, stacked
from anmi.judging.calibration import threshold_for
from anmi.judging.expected import ExpectedShare, share_sentence
from anmi.judging.fused import SURE, unread
from anmi.ragged import Float32s, Float64s, in_rows
from anmi.selection.steps.registry import Context, Params, step
from anmi.selection.steps.samplers import TIERS, places

log = logging.getLogger(__name__)
# Thresholds to try: lowest log-odds, highest log-odds, count.
_NEGATIVE_GRID: Final = (-9.0, 0.0, 73)
_POSITIVE_GRID: Final = (0.0, 9.0, 37)
_SAMPLED_ROWS: Final = 4096
# The first candidates of a sampled row are kept; a row hardly ever draws later ones.
_KEPT_CANDIDATES: Final = 512
# Held-out positives that it takes to measure a rate, and the largest wrong / (wrong + right) of
# :func:`fit_route`. A judge's own probability is no guide: on MedQuAD it was 1 for the same form
# about another disease.
_LEAST_POSITIVES: Final = 100
_MAX_FALSE_PROMOTION_RATE: Final = 0.05
# ``at_least`` makes no negative of a candidate from this probability on.
_EVEN: Final = 0.5


@lru_cache
def _grid(lowest: float, highest: float, count: int) -> Float64s:
    """Return ``count`` probabilities, evenly spaced in log-odds."""
    return scipy.special.expit(np.linspace(lowest, highest, count))


class Promote(Params):
    """The threshold from which an unlabelled candidate serves as a positive."""

    column: str = Field(
        "p_relevant", description="Calibrated probability of relevance that is compared."
    )
    threshold: float = Field(
        0.9,
        gt=0,
        le=1,
        description="From it on a candidate is a positive; 0.9 is RocketQA's.",
    )


@step("promote", Promote)
def promote(block: Candidates, params: Promote, context: Context) -> Candidates:
    """Make positives of the candidates that the judge is sure of (RocketQA; methods §3.1)."""
    sure = block.columns[params.column] >= params.threshold
    return block.rejected(
        "promote", sure, f"{params.column} ≥ {params.threshold:g}", "promoted", in_batch=True
    )


class Route(Params):
    """Both thresholds, given as numbers or found from the error rates that are allowed."""

    column: str = Field(
        "p_relevant", description="Calibrated probability of relevance that is compared."
    )
    negative: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Negatives lie below it. None finds it by the rates below.",
    )
    max_false_negative_rate: float | None = Field(
        0.1,
        gt=0,
        lt=1,
        description=(
            "Share of the held-out known positives that may pass as negatives. 10 % left 0.4 to 1.3"
            " % relevant among the negatives of each of six collections; 5 % half as many, but"
            " easier (benchmarks/mining_quality.py)."
        ),
    )
    max_expected_share: float = Field(
        0.015,
        gt=0,
        lt=1,
        description=(
            "Share of relevant ones that the judge expects among the negatives; it decides where no"
            " rate is given or fewer than 100 positives were held out (1.5 %:"
            " benchmarks/calibration.py)."
        ),
    )
    positive: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Promoted from it on. None: at most 5 % are wrong.",
    )
    barred: float | None = Field(
        None,
        gt=0,
        le=1,
        description=(
            "From it on an uncertain one is no negative in a batch either. None excludes all."
        ),
    )
    at_least: int = Field(
        0, ge=0, description="Negatives of a row in any case, the least doubted below ½. 0: strict."
    )

    @model_validator(mode="after")
    def _thresholds_do_not_cross(self) -> Route:
        if (
            self.negative is not None
            and self.positive is not None
            and self.negative > self.positive
        ):
            raise ValueError(
                f"negative {self.negative:g} lies above positive {self.positive:g}; a candidate"
                " cannot be both"
            )
        return self


class Thresholds(NamedTuple):
    """Below ``negative`` a candidate is a negative, from ``positive`` on a positive."""

    negative: float
    positive: float


def fit_route(blocks: Iterable[Candidates], params: Route, context: Context) -> Thresholds:
    """Find the thresholds that meet the target rates; one that is given stays.

    The negative threshold is the highest below which at most ``max_false_negative_rate`` of the
    held-out known positives lie. Without that rate, or with fewer than 100 held-out positives, it
    is the highest at which the mean probability of the drawn negatives is at most
    ``max_expected_share``.

    The positive threshold is the lowest that meets both rules, and never below the negative one:

    - ``wrong / (wrong + right) ≤ 5 %`` over all queries: ``wrong`` counts the promoted candidates,
      ``right`` counts the queries, since each has a positive.
    - ``wrong / (wrong + right) ≤ 5 %`` over queries with held-out positives: ``wrong`` counts their
      promoted candidates, ``right`` sums each query's share of held-out positives that reach the
      threshold.
    """
    if params.negative is not None and params.positive is not None:
        return Thresholds(params.negative, params.positive)
    heldout_parts = [np.zeros(0, np.float32)]
    sample = _Sample(context.seed)
    promotions = _PromotionCount()
    for measured in blocks:
        # Thresholds are fitted to the probabilities from before a language model changed some.
        block = measured.with_columns({params.column: unread(measured.columns, params.column)})
        unmeasured = np.full(block.positives.shape, np.nan, np.float32)
        positive_columns = {"p_heldout": unmeasured} | block.positive_columns
        heldout = unread(positive_columns, "p_heldout")
        is_open = block.query_verdict == OPEN
        heldout = np.where(is_open[:, None], heldout, np.nan)
        heldout_parts.append(heldout[np.isfinite(heldout)])
        promotions.add(block, params.column, heldout)
        sample.add(block, params.column)
    positives = np.concatenate(heldout_parts)
    queries, values = sample.rows()
    drawn = _Drawn(values, params, max(context.negatives, 1))
    negative = params.negative
    if negative is None:
        negative = _negative_threshold(drawn, positives, params)
    positive = params.positive
    if positive is None:
        positive = promotions.threshold(positives)
    expected = ExpectedShare()
    expected.add(drawn.below(negative), queries)
    thresholds = Thresholds(float(negative), float(max(negative, positive)))
    if expected.documents:
        log.info("route: negatives have P < %.3g, positives P ≥ %.3g", *thresholds)
        share = share_sentence(expected.share, *expected.interval)
        log.info("route: expected share of relevant ones among them: %s", share)
    return thresholds


def _negative_threshold(drawn: _Drawn, positives: Float32s, params: Route) -> float:
    unlabelled = drawn.values[np.isfinite(drawn.values)]
    max_rate = params.max_false_negative_rate
    enough = len(positives) >= _LEAST_POSITIVES and len(unlabelled)
    if max_rate is not None and enough:
        probabilities = np.concatenate([positives, unlabelled])
        labels = np.repeat([1, 0], [len(positives), len(unlabelled)])
        fitted = threshold_for(probabilities, labels, max_rate)
        log.info(
            "route: %.1f %% (%.1f–%.1f %%) of %d held-out positives would pass as negatives",
            100 * fitted.rate,
            100 * fitted.low,
            100 * fitted.high,
            fitted.positives,
        )
        return fitted.threshold
    thresholds = _grid(*_NEGATIVE_GRID)
    if params.barred is not None:
        thresholds = np.append(thresholds[params.barred > thresholds], params.barred)
    shares = np.array([drawn.share(threshold) for threshold in thresholds])
    meets = np.flatnonzero(shares <= params.max_expected_share)
    if not len(meets):
        log.warning(
            "route: no threshold meets max_expected_share %g, since the judge doubts every"
            " candidate; the least doubted are taken, of which it expects %.2g %% to be relevant",
            params.max_expected_share,
            100 * shares[0],
        )
    return float(thresholds[meets[-1]] if len(meets) else thresholds[0])


class _Drawn:
    """Draws each row's negatives: the first below a threshold, or the least doubted if few are.

    Parameters
    ----------
    values
        Probabilities by row in the order of drawing, float32 [R, M]; NaN where there is none.
    params
        Of the step; ``at_least`` says how many below the threshold are few.
    count
        Negatives per row, at least 1.
    """

    def __init__(self, values: Float32s, params: Route, count: int) -> None:
        self.values = values
        self._count = count
        self._fill = min(params.at_least, count)
        # Lowest probabilities per row; ½ or more is never used.
        lowest = np.sort(values)[:, : self._fill]
        self._lowest = np.where(lowest < _EVEN, lowest, np.nan)

    def below(self, threshold: float) -> Float32s:
        """Return the probabilities of the drawn negatives, float32 [R, ≥ M]; NaN elsewhere."""
        below = self.values < threshold
        is_early = np.cumsum(below, axis=1) <= self._count
        chosen = np.where(below & is_early, self.values, np.nan)
        if not self._fill:
            return chosen
        # A row with too few below the threshold takes its least doubted, which include those few.
        is_short = below.sum(axis=1, keepdims=True) < self._fill
        chosen = np.where(is_short, np.nan, chosen)
        least_doubted = np.where(is_short, self._lowest, np.nan)
        return np.concatenate([chosen, least_doubted], axis=1)

    def share(self, threshold: float) -> float:
        """Return the mean probability of the drawn negatives; 0 if there are none."""
        chosen = self.below(threshold)
        if not np.isfinite(chosen).any():
            return 0.0
        return float(np.nanmean(chosen))


class _PromotionCount:
    """Counts what each positive threshold would promote; see :func:`fit_route`."""

    def __init__(self) -> None:
        count = _POSITIVE_GRID[-1]
        self._rows = 0
        self._promoted_all = np.zeros(count)
        self._promoted_beside_heldout = np.zeros(count)
        self._heldout_promoted = np.zeros(count)

    def add(self, block: Candidates, column: str, heldout: Float32s) -> None:
        self._rows += int((block.query_verdict == OPEN).sum())
        values = block.columns[column]
        undecided = block.undecided
        is_heldout = np.isfinite(heldout)
        counts = is_heldout.sum(axis=1, keepdims=True)
        self._promoted_all += _counts_reaching(values[undecided])
        self._promoted_beside_heldout += _counts_reaching(values[undecided & (counts > 0)])
        shares = np.broadcast_to(1 / np.maximum(counts, 1), heldout.shape)
        self._heldout_promoted += _counts_reaching(heldout[is_heldout], shares[is_heldout])

    def threshold(self, positives: Float32s) -> float:
        """Return the lowest threshold that meets the rate of false promotions; ∞ for none."""
        # Sums of thirds are inexact, and differ with the order of the blocks.
        heldout_promoted = self._heldout_promoted.round(6)
        meets = (heldout_promoted > 0) & (len(positives) >= _LEAST_POSITIVES)
        for wrong, right in (
            (self._promoted_all, self._rows),
            (self._promoted_beside_heldout, heldout_promoted),
        ):
            meets &= wrong <= _MAX_FALSE_PROMOTION_RATE * (wrong + right)
        if not meets.any():
            return np.inf
        thresholds = _grid(*_POSITIVE_GRID)
        return float(thresholds[np.argmax(meets)])


def _counts_reaching(values: Float32s, weights: Float64s | None = None) -> Float64s:
    """Return how many values, or how much of their weights, reach each positive threshold."""
    edges = [*_grid(*_POSITIVE_GRID), np.inf]
    counts, _ = np.histogram(values, edges, weights=weights)
    falling = counts.astype(np.float64)[::-1]
    return falling.cumsum()[::-1]


class _Sample:
    """Samples the rows of smallest random keys, and keeps their first candidates' probabilities."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # Random keys, queries and probabilities of the rows so far.
        self._sample: tuple[NDArray[Any], ...] = (
            np.zeros(0),
            np.zeros(0, np.str_),
            np.zeros((0, 0), np.float32),
        )

    def add(self, block: Candidates, column: str) -> None:
        first_positive = block.positives[:, :1]
        keys = seeds.uniform(
            self._seed,
            "selection/route",
            block.query_ids,
            first_positive,
        )[:, 0]
        kept_keys = self._sample[0]
        largest = kept_keys.max() if len(kept_keys) >= _SAMPLED_ROWS else np.inf
        is_sampled = (keys <= largest) & (block.query_verdict == OPEN)
        block = block.take(np.flatnonzero(is_sampled))
        nearness = np.nan_to_num(block.columns["dense"], nan=-np.inf)
        nearness = np.where(block.undecided, nearness, -np.inf)
        # In the order in which samplers draw: by tier, then the nearest first.
        no_tiers = np.zeros(nearness.shape, np.float32)
        tier = np.nan_to_num(block.columns.get("tier", no_tiers))
        order = np.lexsort((block.documents, -nearness, tier))
        values = np.where(block.undecided, block.columns[column], np.nan)
        values = in_rows(values, order).astype(np.float32)[:, :_KEPT_CANDIDATES]
        added = (keys[is_sampled], block.query_ids, values)
        sample = [stacked(pair) for pair in zip(self._sample, added, strict=True)]
        by_key = np.argsort(sample[0], kind="stable")
        smallest = np.sort(by_key[:_SAMPLED_ROWS])
        self._sample = tuple(array[smallest] for array in sample)

    def rows(self) -> tuple[NDArray[np.str_], Float32s]:
        """Return the query and the probabilities of each sampled row.

        Probabilities are float32 [rows, ≤ 512], in the order of drawing; NaN where there is none.
        """
        keys, queries, values = self._sample
        order = np.argsort(keys, kind="stable")
        return queries[order], values[order]


@step(
    "route",
    Route,
    requires=lambda p: {p.column, "dense"},
    fit=fit_route,
    thresholds=("negative", "max_expected_share", "max_false_negative_rate"),
)
def route(block: Candidates, params: Route, context: Context) -> Candidates:
    """Route each judged candidate to negative, uncertain or promoted; reject unjudged ones."""
    thresholds: Thresholds = context.fitted
    judged = block.columns[params.column]
    block = block.rejected("unjudged", np.isnan(judged), "no judge saw it", "unsafe")
    block, p_before_llm = _promoted(block, params, thresholds)
    # A language model never turns a doubtful candidate into a negative.
    doubted = np.fmax(judged, p_before_llm)
    uncertain = block.undecided & (doubted >= thresholds.negative)
    if params.at_least:
        doubt = np.where(block.undecided, doubted, np.inf)
        fill = min(params.at_least, context.negatives)
        is_filled = places(block.documents, doubt) < fill
        spared = uncertain & is_filled & (doubt < _EVEN)
        # Samplers draw a spared candidate only after every safe one.
        last_tier = np.float32(TIERS.index("uncertain"))
        tier = block.columns.get("tier", np.zeros(spared.shape, np.float32))
        block = block.with_columns({"tier": np.where(spared, last_tier, tier)})
        uncertain &= ~spared
    barred = thresholds.negative if params.barred is None else params.barred
    if barred > thresholds.negative:
        rule = f"{params.column} ≥ {barred:.3g}"
        is_barred = uncertain & (doubted >= barred)
        block = block.rejected("barred", is_barred, rule, "uncertain", in_batch=True)
    bars_all = barred <= thresholds.negative
    rule = f"{params.column} ≥ {thresholds.negative:.3g}"
    block = block.rejected("uncertain", uncertain, rule, "uncertain", in_batch=bars_all)
    if not params.at_least:
        return block
    empty = np.logical_and(uncertain.any(axis=1), ~block.undecided.any(axis=1))
    return block.dropped("nothing_safe", empty, f"no candidate has {params.column} < {_EVEN:g}")


def _promoted(
    block: Candidates,
    params: Route,
    thresholds: Thresholds,
) -> tuple[Candidates, Float32s]:
    """Promote the sure candidates; return also the probabilities before a language model."""
    judged = block.columns[params.column]
    p_before_llm = unread(block.columns, params.column)
    if GRADE in block.columns:
        required = params.positive or SURE
        is_read = np.isfinite(block.columns[GRADE])
        is_sure = is_read & (judged >= required)
        rule = f"{params.column} ≥ {required:g} after a language model read it"
        block = block.rejected("promote", is_sure, rule, "promoted", in_batch=True)
        just_below = np.nextafter(np.float32(thresholds.positive), 0)
        # Once a language model read a candidate, only that reading promotes it.
        p_before_llm = np.where(is_read, np.minimum(p_before_llm, just_below), p_before_llm)
    rule = "the judge is never sure enough"
    if thresholds.positive <= 1:
        rule = f"{params.column} ≥ {thresholds.positive:.3g}"
    is_sure = p_before_llm >= thresholds.positive
    return block.rejected("promote", is_sure, rule, "promoted", in_batch=True), p_before_llm
