"""Where further negatives come from when the window holds too few that are safe."""

from __future__ import annotations

from typing import Final

import numpy as np
from pydantic import Field

from anmi.candidates import SOURCES, Candidates
from anmi.selection.steps.registry import Context, Params, step

# Names of the values of the column `tier`, in the order in which samplers draw.
TIERS: Final = ("window", "deeper", "graph", "random", "uncertain")
_RETRIEVED: Final = SOURCES["bm25"] | SOURCES["dense"]


class BackOff(Params):
    """How far one goes for negatives before a row stays short of them."""

    column: str = Field("dense_rank", description="Ranking in which the window lies; dense, since it is the hardest.")
    last: int = Field(100, ge=1, description="Worst rank inside the window; 100 is the usual depth.")
    far: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of a row's random candidates, the least similar, that may serve. Half: a document drawn at "
        "random and nearer than most others may be relevant after all.",
    )


@step("back_off", BackOff, requires=lambda p: {p.column, "dense"})
def back_off(block: Candidates, params: BackOff, context: Context) -> Candidates:
    """Let samplers draw from the window first, then deeper in the ranking, then graph-swapped, then far random ones.

    Only the order of drawing changes: a candidate that a step has rejected stays rejected, so a row is filled with
    candidates that passed every filter or not at all. The column ``tier`` counts in :data:`TIERS`.
    """
    retrieved = (block.source & _RETRIEVED) > 0
    graph = ~retrieved & ((block.source & SOURCES["graph"]) > 0)
    drawn = block.filled & ~retrieved & ~graph
    near = drawn & ~_least(block, drawn, params.far)
    block = block.rejected("back_off", near, f"random, and not among the {params.far:.0%} least similar of them")
    inside = retrieved & (block.columns[params.column] <= params.last)
    # What `route` has put last stays last.
    uncertain = block.columns.get("tier", np.zeros(drawn.shape, np.float32)) == TIERS.index("uncertain")
    tier = np.select([uncertain, inside, retrieved, graph], [4.0, 0.0, 1.0, 2.0], 3.0)
    return block.with_columns({"tier": np.where(block.filled, tier, np.nan)})


def _least(block: Candidates, among: np.ndarray, share: float) -> np.ndarray:
    """True for the share (rounded up) of those under ``among`` in each row that are least similar to the query."""
    # Most columns hold what was retrieved.
    some = np.flatnonzero(among.any(axis=0))
    similarity = np.where(among, np.nan_to_num(block.columns["dense"], nan=np.inf), np.inf)[:, some]
    order = np.lexsort((block.documents[:, some], similarity), axis=1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
    found = among.copy()
    found[:, some] &= place < np.ceil(share * among.sum(axis=1))[:, None]
    return found
