"""Three ways for a judged candidate: negative, uncertain, or promoted to positive."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import expit

from anmi import seeds
from anmi.candidates import OPEN, Candidates
from anmi.judging.targets import threshold_for
from anmi.selection.steps.back_off import TIERS
from anmi.selection.steps.registry import Context, Params, Threshold, step

log = logging.getLogger(__name__)
_LEAK: Final = Threshold("max_leak", (0.0003, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05))
_RATE: Final = Threshold("max_false_negative_rate", (0.01, 0.02, 0.05, 0.1, 0.2, 0.3))
_BAR: Final = Threshold("negative", (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9))
# Bars that are tried, even in log-odds: what is no longer a negative up to an even chance, what is a positive from it.
_BARS: Final = expit(np.linspace(-9.0, 0.0, 37))
_HIGH_BARS: Final = expit(np.linspace(0.0, 9.0, 37))
_SAMPLE: Final = 4096
_NEAREST: Final = 64


class Promote(Params):
    """Bar above which an unlabelled candidate serves as a positive."""

    column: str = Field("p_relevant", description="Calibrated probability of relevance that is compared.")
    threshold: float = Field(
        0.9, gt=0, le=1, description="At or above it a candidate is a positive; 0.9 is RocketQA's."
    )


@step("promote", Promote, requires=lambda p: {p.column})
def promote(block: Candidates, params: Promote, context: Context) -> Candidates:
    """Make positives of the candidates that the judge is sure of (RocketQA's unlabelled positives; methods §3.1)."""
    sure = block.columns[params.column] >= params.threshold
    return block.rejected("promote", sure, f"{params.column} ≥ {params.threshold:g}", "promoted", in_batch=True)


class Route(Params):
    """Both bars, given as they are or by the errors that they may make."""

    column: str = Field("p_relevant", description="Calibrated probability of relevance that is compared.")
    negative: float | None = Field(
        None, gt=0, le=1, description="Negatives lie below it. None finds it by the rates below."
    )
    max_false_negative_rate: float | None = Field(
        0.1,
        gt=0,
        lt=1,
        description="Share of the held-out known positives that may pass as negatives. 10 % left 0.4 to 1.3 % relevant "
        "documents among the negatives of each of six collections, where one bar for all left 0 to 5 %; 5 % left half "
        "as many, but easier ones (benchmarks/mining_quality.py).",
    )
    least_positives: int = Field(
        100, ge=1, description="Held-out positives from which that rate is measured; with fewer `max_leak` decides."
    )
    max_leak: float = Field(
        0.005,
        gt=0,
        lt=1,
        description="Share of relevant documents that the judge itself expects among the negatives, where too few "
        "positives were held out. 0.5 % expected were 0 to 0.8 % in truth on five of seven collections, and 2.0 and "
        "6.6 % on two others, which do have positives to hold out (benchmarks/mining_quality.py).",
    )
    positive: float | None = Field(
        None, gt=0, le=1, description="Candidates at or above it are promoted. None finds it by the rate below."
    )
    max_false_promotion_rate: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Largest share of wrong ones among the positives, should every promoted one be wrong: in all rows "
        "together, and beside the held-out positives in their rows. With too few of these nothing is promoted. A "
        "judge's own probability is no guide: on MedQuAD it was 1 for the same form about another disease.",
    )
    barred: float | None = Field(
        None,
        gt=0,
        le=1,
        description="From it on an uncertain candidate may be no negative inside a batch either; below, another row "
        "may bring it. None bars all that are uncertain.",
    )
    uncertain: Literal["distil", "soft"] = Field(
        "distil",
        description="`distil`: between the bars a candidate is kept for distillation only; `soft`: it may be drawn as "
        "a negative with its weight multiplied by 1 − p, after all others.",
    )
    at_least: int = Field(
        0,
        ge=0,
        description="Judged candidates that may be negatives of a row in any case, those doubted least, but no more "
        "than are wanted; what lies above the bar comes after all others, and a row of which nothing is left is "
        "dropped. 0 is strict. Of no effect under `soft`.",
    )
    at_most: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Probability from which even these are none; at ½ a candidate is as likely relevant as not.",
    )

    @model_validator(mode="after")
    def _bars_do_not_cross(self) -> Route:
        if self.negative is not None and self.positive is not None and self.negative > self.positive:
            raise ValueError(
                f"negative {self.negative:g} lies above positive {self.positive:g}; a candidate cannot be both"
            )
        return self


@dataclass(frozen=True)
class Bars:
    """Below ``negative`` a candidate is a negative, from ``positive`` on a positive."""

    negative: float
    positive: float


def fit_route(blocks: Iterable[Candidates], params: Route, context: Context) -> Bars:
    """Find the bars that meet the target rates; a bar that is given stays.

    The negative bar is the highest that at most ``max_false_negative_rate`` of the held-out known positives stay
    below; with too few of these, the highest at which the mean probability of the nearest n candidates below it is at
    most ``max_leak``. The positive bar is the lowest from which on the unlabelled candidates are at most
    ``max_false_promotion_rate`` of these and the positives: among all rows and their positives, and among the rows
    whose own positive was held out and those positives that reach it. It never lies below the negative bar.
    """
    if params.negative is not None and params.positive is not None:
        return Bars(params.negative, params.positive)
    heldout, sample, count = [np.zeros(0, np.float32)], _Sample(context.seed), _HighCount()
    for block in blocks:
        held = block.positive_columns.get("p_heldout", np.full(block.positives.shape, np.nan))[:, 0]
        held = np.where(block.query_verdict == OPEN, held, np.nan)
        heldout.append(held[np.isfinite(held)])
        count.add(block, params.column, np.isfinite(held))
        sample.add(block, params.column)
    positives = np.concatenate(heldout)
    values = sample.values()
    negative = params.negative
    if negative is None:
        negative = _negative_bar(values, positives, params, max(context.negatives, 1))
    positive = params.positive
    if positive is None:
        positive = count.bar(positives, params)
    bars = Bars(float(negative), float(max(negative, positive)))
    sure = f"positives P ≥ {bars.positive:.3g}" if bars.positive <= 1 else "nothing is surely a positive"
    log.info("route: negatives have P < %.3g, %s", bars.negative, sure)
    return bars


def _negative_bar(values: NDArray[np.float32], positives: NDArray[np.float32], params: Route, count: int) -> float:
    others = values[np.isfinite(values)]
    if params.max_false_negative_rate is not None and len(positives) >= params.least_positives and len(others):
        labels = np.repeat([1, 0], [len(positives), len(others)])
        found = threshold_for(np.concatenate([positives, others]), labels, params.max_false_negative_rate)
        log.info(
            "route: %.1f %% (%.1f–%.1f %%) of %d held-out positives would pass as negatives",
            *(100 * share for share in (found.rate, found.low, found.high)),
            found.positives,
        )
        return found.threshold
    leaks = np.array([_expected_leak(values, bar, count) for bar in _BARS])
    meets = np.flatnonzero(leaks <= params.max_leak)
    if not len(meets):
        log.warning("route: no bar meets max_leak %g, since the judge doubts every candidate", params.max_leak)
    return float(_BARS[meets[-1]] if len(meets) else _BARS[0])


def _expected_leak(values: NDArray[np.float32], bar: float, count: int) -> float:
    """Mean probability of the nearest ``count`` candidates of each row below the bar; rows are ordered by nearness."""
    below = values < bar
    taken = below & (np.cumsum(below, axis=1) <= count)
    return float(values[taken].mean()) if taken.any() else 0.0


class _HighCount:
    """Counts the unlabelled candidates from each of the high bars on."""

    def __init__(self) -> None:
        self._rows = 0
        self._all = np.zeros(len(_HIGH_BARS))
        self._rivals = np.zeros(len(_HIGH_BARS))

    def add(self, block: Candidates, column: str, held: NDArray[np.bool_]) -> None:
        self._rows += int((block.query_verdict == OPEN).sum())
        values, undecided = block.columns[column], block.undecided
        self._all += _at_least(values[undecided])
        self._rivals += _at_least(values[undecided & held[:, None]])

    def bar(self, positives: NDArray[np.float32], params: Route) -> float:
        """Return the lowest bar that meets the rate of false promotions; infinite where there is none."""
        found = (positives[:, None] >= _HIGH_BARS).sum(axis=0)
        meets = (found > 0) & (len(positives) >= params.least_positives)
        for promoted, right in ((self._all, self._rows), (self._rivals, found)):
            meets &= promoted <= params.max_false_promotion_rate * (promoted + right)
        return float(_HIGH_BARS[np.argmax(meets)]) if meets.any() else np.inf


def _at_least(values: NDArray[np.float32]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.histogram(values, [*_HIGH_BARS, np.inf])[0]
    return counts[::-1].cumsum()[::-1]


class _Sample:
    """Probabilities of the nearest candidates of a sample of rows, which does not depend on the shards."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._draws: NDArray[np.float64] = np.zeros(0)
        self._values: NDArray[np.float32] = np.zeros((0, _NEAREST), np.float32)

    def add(self, block: Candidates, column: str) -> None:
        draws = seeds.uniform(self._seed, "selection/route", block.query_ids, block.positives[:, :1])[:, 0]
        last = self._draws.max() if len(self._draws) >= _SAMPLE else np.inf
        rows = np.flatnonzero((draws <= last) & (block.query_verdict == OPEN))
        part = block.take(rows)
        nearness = np.where(part.undecided, np.nan_to_num(part.columns["dense"], nan=-np.inf), -np.inf)
        order = np.lexsort((part.documents, -nearness), axis=1)[:, :_NEAREST]
        values = np.where(part.undecided, part.columns[column], np.nan)
        values = np.take_along_axis(values, order, axis=1).astype(np.float32)
        values = np.pad(values, ((0, 0), (0, _NEAREST - values.shape[1])), constant_values=np.nan)
        self._draws = np.concatenate([self._draws, draws[rows]])
        self._values = np.concatenate([self._values, values])
        if len(self._draws) > _SAMPLE:
            kept = np.sort(np.argsort(self._draws, kind="stable")[:_SAMPLE])
            self._draws, self._values = self._draws[kept], self._values[kept]

    def values(self) -> NDArray[np.float32]:
        """Probabilities by row, the nearest candidate first, float32 [rows, 64]; NaN where there is none."""
        return self._values


@step(
    "route",
    Route,
    requires=lambda p: {p.column, "dense"},
    fit=fit_route,
    thresholds=(_BAR, _LEAK, _RATE),
    fitted=lambda p: Bars,
)
def route(block: Candidates, params: Route, context: Context) -> Candidates:
    """Send each judged candidate one of three ways; one nobody judged is not known to be clean, so it is not used."""
    bars: Bars = context.fitted
    judged = block.columns[params.column]
    block = block.rejected("unjudged", np.isnan(judged), "no judge saw it", "unsafe")
    sure = f"{params.column} ≥ {bars.positive:.3g}" if bars.positive <= 1 else "the judge is never sure enough"
    block = block.rejected("promote", judged >= bars.positive, sure, "promoted", in_batch=True)
    between = block.undecided & (judged >= bars.negative)
    if params.uncertain == "soft":
        weight = np.where(between, block.weight * (1 - judged), block.weight).astype(np.float32)
        return replace(_last(block, between), weight=weight)
    if params.at_least:
        spared = between & _least_doubted(block, judged, min(params.at_least, context.negatives), params.at_most)
        block, between = _last(block, spared), between & ~spared
    barred = bars.negative if params.barred is None else params.barred
    if barred > bars.negative:
        rule = f"{params.column} ≥ {barred:.3g}"
        block = block.rejected("barred", between & (judged >= barred), rule, "uncertain", in_batch=True)
    everywhere = barred <= bars.negative
    rule = f"{params.column} ≥ {bars.negative:.3g}"
    block = block.rejected("uncertain", between, rule, "uncertain", in_batch=everywhere)
    if not params.at_least:
        return block
    empty = np.logical_and(between.any(axis=1), ~block.undecided.any(axis=1))
    return block.dropped("nothing_safe", empty, f"no candidate has {params.column} < {params.at_most:.3g}")


def _least_doubted(block: Candidates, judged: NDArray[np.float32], count: int, below: float) -> NDArray[np.bool_]:
    """True for the ``count`` candidates of each row with the lowest probability, if that is below the given one."""
    doubt = np.where(block.undecided, judged, np.inf)
    place = np.argsort(np.lexsort((block.documents, doubt), axis=1), axis=1)
    return (place < count) & (doubt < below)


def _last(block: Candidates, doubtful: NDArray[np.bool_]) -> Candidates:
    """Let what is doubtful come after what is safe, however far away that is."""
    tier = block.columns.get("tier", np.zeros(doubtful.shape, np.float32))
    return block.with_columns({"tier": np.where(doubtful, np.float32(TIERS.index("uncertain")), tier)})
