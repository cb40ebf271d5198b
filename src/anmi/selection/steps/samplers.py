"""Steps that pick the negatives among the undecided candidates, and the order of drawing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anmi import seeds
from anmi.candidates import NEGATIVE, SOURCES, Candidates
from anmi.ragged import Bools, Float64s, Int64s
from anmi.selection.steps.registry import Context, Params, step

# Names of the values of the column `tier`, in the order in which samplers draw.
TIERS: Final = ("window", "deeper", "graph", "random", "uncertain")
_RETRIEVED: Final = SOURCES["bm25"] | SOURCES["dense"]


def places(*keys: NDArray[Any]) -> Int64s:
    """Return the place of each candidate in its row, from 0, by keys as of ``numpy.lexsort``."""
    return np.argsort(np.lexsort(keys))


def choose(
    block: Candidates,
    key: NDArray[np.floating],
    count: int,
    first: Bools | None = None,
) -> Candidates:
    """Make the ``count`` undecided candidates of the largest key in each row its negatives.

    A smaller ``tier`` (the column that ``back_off`` makes) goes before a larger one, and within a
    tier those under ``first`` [Q, M] before the others. Ties go to the smaller document index, so
    the order of the candidates does not matter. The column ``choice`` numbers the chosen of each
    row from 1.
    """
    usable = block.undecided & ~np.isnan(key)
    late = np.zeros_like(usable) if first is None else ~first
    no_tiers = np.zeros(key.shape, np.float32)
    tier = np.nan_to_num(block.columns.get("tier", no_tiers))
    # What cannot be used is behind the last tier; one number sorts faster than three.
    group = np.where(usable, 2 * tier + late, np.inf)
    place = places(block.documents, -key, group)
    chosen = usable & (place < count)
    choice = np.where(chosen, place + 1, np.nan)
    verdict = np.where(chosen, np.int16(NEGATIVE), block.verdict)
    return replace(block.with_columns({"choice": choice}), verdict=verdict)


def row_keys(block: Candidates) -> list[str]:
    """Names of the rows' random streams: the query and its first positive."""
    pairs = zip(block.query_ids, block.positives[:, 0], strict=True)
    return [f"{query}\x1f{positive}" for query, positive in pairs]


class Top(Params):
    """Take the hardest."""

    by: str = Field(
        "dense", description="Column of which the largest values are taken, such as `weight`."
    )
    first: str | None = Field(
        None, description="Column whose true values go before all others, such as `preferred`."
    )


@step(
    "top",
    Top,
    requires=lambda p: {p.by, p.first} - {None, "weight"},
    sampler=True,
)
def top(block: Candidates, params: Top, context: Context) -> Candidates:
    """Take the n candidates of the largest value in a column, or first those marked in another."""
    first = None if params.first is None else block.columns[params.first] > 0.5
    by = block.weight if params.by == "weight" else block.columns[params.by]
    return choose(block, by, context.negatives, first)


@step("random", sampler=True)
def random(block: Candidates, params: Params, context: Context) -> Candidates:
    """Draw n candidates uniformly without replacement, from the row's own random stream."""
    draws = seeds.uniform(
        context.seed,
        "selection/random",
        row_keys(block),
        block.documents,
    )
    return choose(block, draws, context.negatives)


class Draw(Params):
    """What the chances go by."""

    by: str = Field("hardness", description="Column in proportion to which candidates are drawn.")


@step(
    "draw",
    Draw,
    requires=lambda p: {p.by},
    sampler=True,
)
def draw(block: Candidates, params: Draw, context: Context) -> Candidates:
    """Draw n candidates without replacement, in proportion to a column (methods §3.4, mode `mix`).

    ProGCL's own `mix` goes on to blend pairs of the hardest into vectors that are no document; a
    miner can only draw.
    """
    values = block.columns[params.by].astype(np.float64)
    with np.errstate(divide="ignore"):
        log_chance = np.log(np.where(values > 0, values, np.nan))
    keys = gumbel_keys(block, log_chance, context.seed, "selection/draw")
    return choose(block, keys, context.negatives)


def gumbel_keys(
    block: Candidates,
    log_chance: Float64s,
    seed: int,
    stream: str,
) -> Float64s:
    """Return keys whose n largest are n draws without replacement (Gumbel top-k; Kool et al. 2019).

    Parameters
    ----------
    block
        Names the rows' random streams, and the documents in them.
    log_chance
        Logarithm of each candidate's chance up to a constant per row, [Q, M]; NaN where it has
        none.
    seed, stream
        Of the run and of the step.

    Returns
    -------
    numpy.ndarray
        log-chance plus a standard Gumbel variable, [Q, M].
    """
    uniform = seeds.uniform(seed, stream, row_keys(block), block.documents)
    # A draw of exactly 0 has no logarithm; half of the next larger one stands in for it.
    uniform = np.maximum(uniform, 2.0**-54)
    return log_chance - np.log(-np.log(uniform))


class BackOff(Params):
    """How far one goes for negatives before a row stays short of them."""

    last: int = Field(
        100,
        ge=1,
        description="Worst rank by the encoder inside the window; 100 is the usual depth.",
    )


@step("back_off", BackOff, requires=lambda p: {"dense_rank", "dense"})
def back_off(block: Candidates, params: BackOff, context: Context) -> Candidates:
    """Let samplers draw from the window, then deeper, then graph-swapped, then far random ones.

    Only the order of drawing changes: a candidate that a step has rejected stays rejected, so a row
    is filled with candidates that passed every filter or not at all. The column ``tier`` counts in
    :data:`TIERS`.
    """
    retrieved = (block.source & _RETRIEVED) > 0
    graph = ~retrieved & ((block.source & SOURCES["graph"]) > 0)
    drawn = block.filled & ~retrieved & ~graph
    near = drawn & ~_least_similar_half(block, drawn)
    block = block.rejected("back_off", near, "random, and not among the 50% least similar of them")
    inside = retrieved & (block.columns["dense_rank"] <= params.last)
    # What `route` has put last stays last.
    last_tier = TIERS.index("uncertain")
    no_tiers = np.zeros(drawn.shape, np.float32)
    uncertain = block.columns.get("tier", no_tiers) == last_tier
    tier = np.select(
        [uncertain, inside, retrieved, graph],
        [4.0, 0.0, 1.0, 2.0],
        3.0,
    )
    return block.with_columns({"tier": np.where(block.filled, tier, np.nan)})


def _least_similar_half(block: Candidates, among: np.ndarray) -> np.ndarray:
    """True for those under ``among`` in each row that are the half least similar to the query."""
    # Most columns hold what was retrieved.
    some = np.flatnonzero(among.any(axis=0))
    dense = np.nan_to_num(block.columns["dense"], nan=np.inf)
    similarity = np.where(among, dense, np.inf)[:, some]
    place = places(block.documents[:, some], similarity)
    count = np.ceil(among.sum(axis=1) / 2)[:, None]
    half = among.copy()
    half[:, some] &= place < count
    return half


log = logging.getLogger(__name__)


class SimAns(Params):
    """Shape of the distribution that negatives are drawn from."""

    form: Literal["score", "released", "rank"] = Field(
        "score",
        description=(
            "exp(−a(s − s⁺ − b)²), the released code's (s − s⁺ + b)², or exp(−a·|rank − b·rank⁺|)."
        ),
    )
    a: float | None = Field(
        None, gt=0, description="How sharply it falls. None is 0.5, the paper's, or 1 for ranks."
    )
    b: float | None = Field(
        None, description="Where it peaks. None is 0, the paper's, or 1.5 for ranks."
    )
    weigh: bool = Field(
        False,
        description=(
            "Multiply weights by the importance 1/p of the chosen, the largest of a row taken as 1."
        ),
    )

    @property
    def constants(self) -> tuple[float, float]:
        """The values of a and b."""
        a, b = (1.0, 1.5) if self.form == "rank" else (0.5, 0.0)
        if self.a is not None:
            a = self.a
        if self.b is not None:
            b = self.b
        return a, b


def fit_scale(blocks: Iterable[Candidates], params: SimAns, context: Context) -> float:
    """Return the variance of s − s⁺ over the undecided candidates of all queries, 1 for ranks.

    `a` is divided by it: the paper's 0.5 is made for dot products.
    """
    if params.form == "rank":
        return 1.0
    gaps = [np.zeros(0)]
    for block in blocks:
        gaps_of_block = _gaps(block)[block.undecided]
        gaps.append(gaps_of_block[np.isfinite(gaps_of_block)])
    # Sorted, since the last bits of a sum depend on its order.
    all_gaps = np.sort(np.concatenate(gaps))
    variance = float(np.var(all_gaps)) if len(all_gaps) else 0.0
    if variance < 1e-12:
        log.warning("simans: all score gaps are alike or unknown, so a is not scaled")
        return 1.0
    return variance


def _gaps(block: Candidates) -> Float64s:
    scores = block.columns["dense"].astype(np.float64)
    return scores - block.positive_columns["dense"][:, :1]


def log_chances(block: Candidates, params: SimAns, variance: float = 1.0) -> Float64s:
    """Return the log-probability that each candidate is the first of its row to be drawn.

    Parameters
    ----------
    block
        Its undecided candidates of known score take part.
    params
        Form and constants. Ranks count from 0, so a positive on rank 0 draws form `rank` to the
        very top; a positive whose rank is unknown counts as behind all candidates of its row.
    variance
        Of the gaps, by which `a` is divided.

    Returns
    -------
    numpy.ndarray
        [Q, M]; NaN where a candidate cannot be drawn.
    """
    a, b = params.constants
    if params.form == "rank":
        rank = block.columns["dense_rank"].astype(np.float64) - 1
        positive_rank = block.positive_columns["dense_rank"][:, :1].astype(np.float64) - 1
        behind = (
            np.max(
                np.nan_to_num(rank, nan=-1.0),
                axis=1,
                keepdims=True,
                initial=-1.0,
            )
            + 1
        )
        energy = -a * np.abs(rank - b * np.where(np.isnan(positive_rank), behind, positive_rank))
    else:
        peak = b if params.form == "score" else -b
        energy = -(a / variance) * (_gaps(block) - peak) ** 2
    can_be_drawn = block.undecided & np.isfinite(energy)
    energy = np.where(can_be_drawn, energy, -np.inf)
    largest = np.max(energy, axis=1, keepdims=True, initial=-1e300)
    # Added in the order of their size, so that the order of the candidates changes no bit.
    relative = np.sort(np.exp(energy - largest))
    total = np.cumsum(relative, axis=1)[:, -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Float64s = energy - largest - np.log(total)
    return np.where(np.isfinite(result), result, np.nan)


@step(
    "simans",
    SimAns,
    fit=fit_scale,
    makes=("importance",),
    sampler=True,
    requires=lambda p: {"dense", "dense_rank"} if p.form == "rank" else {"dense"},
)
def simans(block: Candidates, params: SimAns, context: Context) -> Candidates:
    """Draw n candidates without replacement around the positive's score or rank (methods §3.5).

    The paper draws 15 from the first 100 to 200 ranks: put `rank_window` before it. The column
    ``importance`` holds 1/p of the chosen, p being the chance of the first draw, normalised to a
    mean of 1 over those of the row.
    """
    chances = log_chances(block, params, 1.0 if context.fitted is None else context.fitted)
    block = choose(
        block,
        gumbel_keys(block, chances, context.seed, "selection/simans"),
        context.negatives,
    )
    inverse = np.where(block.negatives, -chances, -np.inf)
    relative = np.exp(
        inverse
        - np.max(
            inverse,
            axis=1,
            keepdims=True,
            initial=-1e300,
        )
    )
    count = np.maximum(block.negatives.sum(axis=1, keepdims=True), 1)
    mean = np.cumsum(np.sort(relative), axis=1)[:, -1:] / count
    with np.errstate(invalid="ignore", divide="ignore"):
        importance = np.where(block.negatives, relative / mean, np.nan)
    block = block.with_columns({"importance": importance})
    if not params.weigh:
        return block
    weight = np.where(block.negatives, block.weight * relative, block.weight)
    return replace(block, weight=weight.astype(np.float32))
