"""Steps that pick the negatives among the candidates still undecided, and the order in which they are drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anmi import seeds
from anmi.candidates import NEGATIVE, SOURCES, Candidates
from anmi.selection.steps.registry import Context, Params, step

# Names of the values of the column `tier`, in the order in which samplers draw.
TIERS: Final = ("window", "deeper", "graph", "random", "uncertain")
_RETRIEVED: Final = SOURCES["bm25"] | SOURCES["dense"]


def places(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each candidate in its row, from 0, in the order of keys as those of ``numpy.lexsort``."""
    return np.argsort(np.lexsort(keys, axis=1), axis=1)


def choose(
    block: Candidates, key: NDArray[np.floating], count: int, first: NDArray[np.bool_] | None = None
) -> Candidates:
    """Make the ``count`` undecided candidates of the largest key in each row its negatives.

    A smaller ``tier`` (the column that ``back_off`` makes) goes before a larger one, and within a tier those under
    ``first`` [Q, M] before the others. Ties go to the smaller document index, so the order of the candidates does not
    matter. The column ``choice`` numbers the chosen of each row from 1.
    """
    usable = block.undecided & ~np.isnan(key)
    late = np.zeros_like(usable) if first is None else ~first
    tier = np.nan_to_num(block.columns.get("tier", np.zeros(key.shape, np.float32)))
    # What cannot be used is behind the last tier; one number sorts faster than three.
    group = np.where(usable, 2 * tier + late, np.inf)
    place = places(block.documents, -key, group)
    taken = usable & (place < count)
    block = block.with_columns({"choice": np.where(taken, place + 1, np.nan)})
    return replace(block, verdict=np.where(taken, np.int16(NEGATIVE), block.verdict))


def row_keys(block: Candidates) -> list[str]:
    """Names of the rows' random streams: the query and its first positive."""
    return [f"{query}\x1f{own}" for query, own in zip(block.query_ids, block.positives[:, 0], strict=True)]


class Top(Params):
    """Take the hardest."""

    by: str = Field("dense", description="Column of which the largest values are taken, such as `weight`.")
    first: str | None = Field(None, description="Column whose true values go before all others, such as `preferred`.")


@step("top", Top, requires=lambda p: {p.by, p.first} - {None, "weight"}, sampler=True)
def top(block: Candidates, params: Top, context: Context) -> Candidates:
    """Take the n candidates of the largest value in a column, or first those marked in another."""
    first = None if params.first is None else block.columns[params.first] > 0.5
    by = block.weight if params.by == "weight" else block.columns[params.by]
    return choose(block, by, context.negatives, first)


@step("random", sampler=True)
def random(block: Candidates, params: Params, context: Context) -> Candidates:
    """Draw n candidates uniformly without replacement, from the row's own random stream."""
    draws = seeds.uniform(context.seed, "selection/random", row_keys(block), block.documents)
    return choose(block, draws, context.negatives)


class Draw(Params):
    """What the chances go by."""

    by: str = Field("hardness", description="Column in proportion to which candidates are drawn.")


@step("draw", Draw, requires=lambda p: {p.by}, sampler=True)
def draw(block: Candidates, params: Draw, context: Context) -> Candidates:
    """Draw n candidates without replacement, each time in proportion to a column (methods §3.4, mode `mix`).

    ProGCL's own `mix` goes on to blend pairs of the hardest into vectors that are no document; a miner can only draw.
    """
    values = block.columns[params.by].astype(np.float64)
    with np.errstate(divide="ignore"):
        log_chance = np.log(np.where(values > 0, values, np.nan))
    return choose(block, gumbel_keys(block, log_chance, context.seed, "selection/draw"), context.negatives)


def gumbel_keys(block: Candidates, log_chance: NDArray[np.float64], seed: int, stream: str) -> NDArray[np.float64]:
    """Return keys whose n largest are n draws without replacement (the Gumbel top-k trick; Kool et al. 2019).

    Parameters
    ----------
    block
        Names the rows' random streams, and the documents in them.
    log_chance
        Logarithm of each candidate's chance up to a constant per row, [Q, M]; NaN where it has none.
    seed, stream
        Of the run and of the step.

    Returns
    -------
    numpy.ndarray
        log-chance plus a standard Gumbel variable, [Q, M].
    """
    uniform = seeds.uniform(seed, stream, row_keys(block), block.documents)
    # A draw of exactly 0 has no logarithm; half of the next larger one stands in for it.
    return log_chance - np.log(-np.log(np.maximum(uniform, 2.0**-54)))


class BackOff(Params):
    """How far one goes for negatives before a row stays short of them."""

    last: int = Field(100, ge=1, description="Worst rank by the encoder inside the window; 100 is the usual depth.")


@step("back_off", BackOff, requires=lambda p: {"dense_rank", "dense"})
def back_off(block: Candidates, params: BackOff, context: Context) -> Candidates:
    """Let samplers draw from the window first, then deeper in the ranking, then graph-swapped, then far random ones.

    Only the order of drawing changes: a candidate that a step has rejected stays rejected, so a row is filled with
    candidates that passed every filter or not at all. The column ``tier`` counts in :data:`TIERS`.
    """
    retrieved = (block.source & _RETRIEVED) > 0
    graph = ~retrieved & ((block.source & SOURCES["graph"]) > 0)
    drawn = block.filled & ~retrieved & ~graph
    near = drawn & ~_least_similar_half(block, drawn)
    block = block.rejected("back_off", near, "random, and not among the 50% least similar of them")
    inside = retrieved & (block.columns["dense_rank"] <= params.last)
    # What `route` has put last stays last.
    uncertain = block.columns.get("tier", np.zeros(drawn.shape, np.float32)) == TIERS.index("uncertain")
    tier = np.select([uncertain, inside, retrieved, graph], [4.0, 0.0, 1.0, 2.0], 3.0)
    return block.with_columns({"tier": np.where(block.filled, tier, np.nan)})


def _least_similar_half(block: Candidates, among: np.ndarray) -> np.ndarray:
    """True for the half (rounded up) of those under ``among`` in each row that are least similar to the query."""
    # Most columns hold what was retrieved.
    some = np.flatnonzero(among.any(axis=0))
    similarity = np.where(among, np.nan_to_num(block.columns["dense"], nan=np.inf), np.inf)[:, some]
    found = among.copy()
    found[:, some] &= places(block.documents[:, some], similarity) < np.ceil(among.sum(axis=1) / 2)[:, None]
    return found
