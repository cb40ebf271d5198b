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
# Thresholds that are tried: the lowest and the highest log-odds, and how many. Those of positives
# begin at an even chance, where those of negatives end.
_NEGATIVE_GRID: Final = (-9.0, 0.0, 73)
_POSITIVE_GRID: Final = (0.0, 9.0, 37)
_SAMPLE: Final = 4096
# Candidates of a sampled row that are looked at; behind them a row hardly ever draws.
_FIRST: Final = 512
# Held-out positives from which rates are measured, and the largest share of wrong ones among the
# positives, should every promoted one be wrong: in all rows together, and beside the held-out
# positives in their rows. A judge's own probability is no guide: on MedQuAD it was 1 for the same
# form about another disease.
_LEAST_POSITIVES: Final = 100
_MAX_FALSE_PROMOTION_RATE: Final = 0.05
# From it on a candidate is as likely relevant as not, and never a negative.
_EVEN: Final = 0.5


@lru_cache
def _grid(lowest: float, highest: float, count: int) -> Float64s:
    """Return so many probabilities, even in log-odds."""
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

    The negative threshold is the highest that at most ``max_false_negative_rate`` of the held-out
    known positives stay below; with too few of these, or without that rate, the highest at which
    the mean probability of the negatives that a row would take is at most ``max_expected_share``.
    The positive threshold is the lowest from which on the unlabelled candidates are at most 5 % of
    these and the positives: among all queries, each with one positive, and among those of which
    positives were held out, each with the share of these that reach it. It never lies below the
    negative threshold.
    """
    if params.negative is not None and params.positive is not None:
        return Thresholds(params.negative, params.positive)
    heldout_parts = [np.zeros(0, np.float32)]
    sample = _Sample(context.seed)
    promotions = _PromotionCount()
    for measured in blocks:
        # What a language model said of some changes what becomes of those, not the thresholds.
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
    """What rows take as negatives: the first below a threshold, if few the least doubted.

    Parameters
    ----------
    values
        Probabilities by row in the order of drawing, float32 [R, M]; NaN where there is none.
    params
        Of the step.
    count
        Negatives per row, at least 1.
    """

    def __init__(self, values: Float32s, params: Route, count: int) -> None:
        self.values = values
        self._count = count
        self._fill = min(params.at_least, count)
        # The least doubted of each row, of which one that is likelier relevant than that is none in
        # any case.
        lowest = np.sort(values)[:, : self._fill]
        self._least = np.where(lowest < _EVEN, lowest, np.nan)

    def below(self, threshold: float) -> Float32s:
        """Return the probabilities of what is taken, float32 [R, ≤ 2 n], NaN for none."""
        below = self.values < threshold
        is_early = np.cumsum(below, axis=1) <= self._count
        chosen = np.where(below & is_early, self.values, np.nan)
        if not self._fill:
            return chosen
        # Of a row with fewer below the threshold than are to be filled, all below it are among the
        # least doubted.
        short = below.sum(axis=1, keepdims=True) < self._fill
        chosen = np.where(short, np.nan, chosen)
        least_doubted = np.where(short, self._least, np.nan)
        return np.concatenate([chosen, least_doubted], axis=1)

    def share(self, threshold: float) -> float:
        """Return the mean probability of what is taken; 0 of nothing."""
        chosen = self.below(threshold)
        if not np.isfinite(chosen).any():
            return 0.0
        return float(np.nanmean(chosen))


class _PromotionCount:
    """Counts the unlabelled candidates from each of the positive thresholds on."""

    def __init__(self) -> None:
        thresholds = _POSITIVE_GRID[-1]
        self._rows = 0
        self._all = np.zeros(thresholds)
        self._rivals = np.zeros(thresholds)
        self._right = np.zeros(thresholds)

    def add(self, block: Candidates, column: str, heldout: Float32s) -> None:
        self._rows += int((block.query_verdict == OPEN).sum())
        values = block.columns[column]
        undecided = block.undecided
        is_heldout = np.isfinite(heldout)
        counts = is_heldout.sum(axis=1, keepdims=True)
        self._all += _at_least(values[undecided])
        self._rivals += _at_least(values[undecided & (counts > 0)])
        shares = np.broadcast_to(1 / np.maximum(counts, 1), heldout.shape)
        self._right += _at_least(heldout[is_heldout], shares[is_heldout])

    def threshold(self, positives: Float32s) -> float:
        """Return the lowest threshold that meets the rate of false promotions; ∞ for none."""
        # Thirds and sevenths add up to whole numbers only nearly, and in another order to others.
        right_promotions = self._right.round(6)
        meets = (right_promotions > 0) & (len(positives) >= _LEAST_POSITIVES)
        counts = (
            (self._all, self._rows),
            (self._rivals, right_promotions),
        )
        for promoted, right in counts:
            meets &= promoted <= _MAX_FALSE_PROMOTION_RATE * (promoted + right)
        if not meets.any():
            return np.inf
        thresholds = _grid(*_POSITIVE_GRID)
        return float(thresholds[np.argmax(meets)])


def _at_least(values: Float32s, weights: Float64s | None = None) -> Float64s:
    edges = [*_grid(*_POSITIVE_GRID), np.inf]
    counts, _ = np.histogram(values, edges, weights=weights)
    falling = counts.astype(np.float64)[::-1]
    return falling.cumsum()[::-1]


class _Sample:
    """Probabilities of the first candidates of a sample of rows, whatever the shards."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # Draws, queries and values of the rows so far.
        self._sample: tuple[NDArray[Any], ...]
        self._sample = (
            np.zeros(0),
            np.zeros(0, np.str_),
            np.zeros((0, 0), np.float32),
        )

    def add(self, block: Candidates, column: str) -> None:
        first_positive = block.positives[:, :1]
        draws = seeds.uniform(
            self._seed,
            "selection/route",
            block.query_ids,
            first_positive,
        )[:, 0]
        sample_draws = self._sample[0]
        largest = sample_draws.max() if len(sample_draws) >= _SAMPLE else np.inf
        is_sampled = (draws <= largest) & (block.query_verdict == OPEN)
        block = block.take(np.flatnonzero(is_sampled))
        nearness = np.nan_to_num(block.columns["dense"], nan=-np.inf)
        nearness = np.where(block.undecided, nearness, -np.inf)
        # As samplers draw: the window before what lies deeper.
        no_tiers = np.zeros(nearness.shape, np.float32)
        tier = np.nan_to_num(block.columns.get("tier", no_tiers))
        order = np.lexsort((block.documents, -nearness, tier))
        values = np.where(block.undecided, block.columns[column], np.nan)
        values = in_rows(values, order).astype(np.float32)[:, :_FIRST]
        added = (draws[is_sampled], block.query_ids, values)
        sample = [stacked(pair) for pair in zip(self._sample, added, strict=True)]
        by_draw = np.argsort(sample[0], kind="stable")
        smallest = np.sort(by_draw[:_SAMPLE])
        self._sample = tuple(array[smallest] for array in sample)

    def rows(self) -> tuple[NDArray[np.str_], Float32s]:
        """Return the query and the probabilities of each row, float32 [rows, ≤ 512] or NaN.

        The probabilities come in the order of drawing.
        """
        draws, queries, values = self._sample
        order = np.argsort(draws, kind="stable")
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
    block, before = _promoted(block, params, thresholds)
    # Nothing that was doubted before becomes a negative by it.
    doubted = np.fmax(judged, before)
    between = block.undecided & (doubted >= thresholds.negative)
    if params.at_least:
        doubt = np.where(block.undecided, doubted, np.inf)
        fill = min(params.at_least, context.negatives)
        is_filled = places(block.documents, doubt) < fill
        spared = between & is_filled & (doubt < _EVEN)
        # What is doubtful comes after what is safe, however far away that is.
        last_tier = np.float32(TIERS.index("uncertain"))
        tier = block.columns.get("tier", np.zeros(spared.shape, np.float32))
        block = block.with_columns({"tier": np.where(spared, last_tier, tier)})
        between &= ~spared
    barred = thresholds.negative if params.barred is None else params.barred
    if barred > thresholds.negative:
        rule = f"{params.column} ≥ {barred:.3g}"
        is_barred = between & (doubted >= barred)
        block = block.rejected("barred", is_barred, rule, "uncertain", in_batch=True)
    everywhere = barred <= thresholds.negative
    rule = f"{params.column} ≥ {thresholds.negative:.3g}"
    block = block.rejected("uncertain", between, rule, "uncertain", in_batch=everywhere)
    if not params.at_least:
        return block
    nothing_left = ~block.undecided.any(axis=1)
    empty = np.logical_and(between.any(axis=1), nothing_left)
    return block.dropped("nothing_safe", empty, f"no candidate has {params.column} < {_EVEN:g}")


def _promoted(
    block: Candidates,
    params: Route,
    thresholds: Thresholds,
) -> tuple[Candidates, Float32s]:
    """Promote the sure candidates; return also what the judges said before a language model did."""
    judged = block.columns[params.column]
    before = unread(block.columns, params.column)
    if GRADE in block.columns:
        required = params.positive or SURE
        is_read = np.isfinite(block.columns[GRADE])
        is_sure = is_read & (judged >= required)
        rule = f"{params.column} ≥ {required:g} after a language model read it"
        block = block.rejected("promote", is_sure, rule, "promoted", in_batch=True)
        just_below = np.nextafter(np.float32(thresholds.positive), 0)
        before = np.where(is_read, np.minimum(before, just_below), before)
    rule = "the judge is never sure enough"
    if thresholds.positive <= 1:
        rule = f"{params.column} ≥ {thresholds.positive:.3g}"
    is_sure = before >= thresholds.positive
    return block.rejected("promote", is_sure, rule, "promoted", in_batch=True), before
