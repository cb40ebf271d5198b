"""Negatives drawn anew in every step from all that were mined for a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi import seeds
from anmi.errors import AnmiError
from anmi.training.batch import Row
from anmi.training.curriculum import Curriculum, State
from anmi.training.options.curricula import WindowOptions

STREAM: Final = "training/pool"
_EVERYTHING: Final = State(difficulty=0.0, low=-math.inf, high=math.inf)


class PoolSampler:
    """Draws the negatives of a step uniformly from those inside the curriculum's window, without replacement.

    Where the window holds too few, those nearest to it follow, unless it is strict, and negatives that nobody rated
    come last. What lies below the danger border, or weighs nothing, is never drawn, nor is it a negative of its row
    through another row of the batch. The draws of a row depend on seed, step and row only, and the first k of n drawn
    are what a draw of k would have given.

    Parameters
    ----------
    rows
        All training rows with all negatives that were mined for them. With a window in Elo they were judged in
        ``elo``.
    count
        Negatives a row brings where the curriculum does not say; None is all it has.
    seed
        Of the training.
    curriculum
        Whose state every draw goes by; None draws from the whole pool.
    options
        Of the curriculum: what its window is in, and the danger border; None without a curriculum.
    keep
        Judgments that the loss reads; others are not carried into the batches.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        count: int | None,
        seed: int,
        curriculum: Curriculum | None = None,
        options: WindowOptions | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        lengths = np.array([len(row.negatives) for row in rows])
        self._places = np.arange(max(int(lengths.max(initial=0)), 1), dtype=np.int32)
        exists = self._places < lengths[:, None]
        weights = _padded([row.weights for row in rows], exists, 0.0)
        window = "none" if options is None else options.window
        self._gap = _gaps(rows, exists, window)
        danger = options.danger if options is not None and window == "elo" else -math.inf
        # A gap nobody knows is not known to be below the border.
        self._usable = (weights > 0) & ~(self._gap < danger)
        self._strict = options is not None and options.fill == "none"
        self._rows = [_stripped(row, exists[i] & ~self._usable[i], keep) for i, row in enumerate(rows)]
        self._keys = [f"{row.query_id}\x1f{row.positive_id}" for row in rows]
        self._count, self._seed, self._curriculum = count, seed, curriculum
        self._report: dict[str, float] = {}

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        state = _EVERYTHING if self._curriculum is None else self._curriculum.state
        places, taken, inside = self.draw(rows, step, state)
        if self._curriculum is not None:
            drawn = int(taken.sum())
            share = float((inside & taken).sum()) / drawn if drawn else math.nan
            self._report = {"negatives": drawn / len(rows), "inside": share}
        return [
            self._rows[number].pick(line[:count])
            for number, line, count in zip(rows.tolist(), places.tolist(), taken.sum(axis=1).tolist(), strict=True)
        ]

    def draw(
        self, rows: NDArray[np.int64], step: int, state: State
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return what is drawn under a state.

        Returns, for B rows and n wanted: places in the pool in the order drawn, int64 [B, n]; which of them were drawn,
        bool, true ones first; and which lie inside the window, bool.
        """
        gap = self._gap[rows]
        outside = np.maximum(np.maximum(state.low - gap, gap - state.high), 0.0)
        outside[np.isnan(gap)] = np.inf
        usable = self._usable[rows] & (outside == 0 if self._strict else True)
        keys = [self._keys[number] for number in rows.tolist()]
        slots = np.broadcast_to(self._places, gap.shape)
        uniform = seeds.uniform(self._seed, f"{STREAM}/{step}", keys, slots)
        order = np.lexsort((uniform, np.where(usable, outside, np.inf), ~usable), axis=1)
        wanted = self._count if state.negatives is None else state.negatives
        order = order[:, :wanted]
        taken = np.take_along_axis(usable, order, axis=1)
        return order, taken, np.take_along_axis(outside == 0, order, axis=1)

    def report(self) -> dict[str, float]:
        """Return the mean number of negatives a row of the last step, and the share of them inside the window."""
        return self._report


def check_pool(rows: Sequence[Row], negatives: int | None) -> None:
    """Raise an AnmiError unless there is more to draw from than is drawn."""
    most = max(len(row.negatives) for row in rows)
    if negatives is None or most <= negatives:
        wanted = "all negatives of a row" if negatives is None else f"{negatives} negatives a row"
        raise AnmiError(
            f"A curriculum chooses among more negatives than a step takes, but {wanted} are asked for and no row has "
            f"more than {most}; ask for fewer, or give the recipe a larger `pool` and run selection again."
        )


def _gaps(rows: Sequence[Row], exists: NDArray[np.bool_], window: str) -> NDArray[np.float64]:
    if window == "elo":
        # Behind those of the negatives there may be ratings of uncertain documents.
        rated = [row.judged["elo"][1][: len(row.negatives)] for row in rows]
        own = np.array([row.judged["elo"][0] for row in rows])
        return own[:, None] - _padded(rated, exists, np.nan)
    if window == "rank":
        lengths = exists.sum(axis=1, keepdims=True)
        return np.where(exists, np.arange(exists.shape[1]) / np.maximum(lengths - 1, 1), np.nan)
    return np.zeros(exists.shape)


def _padded(values: Sequence[Sequence[float]], exists: NDArray[np.bool_], fill: float) -> NDArray[np.float64]:
    result = np.full(exists.shape, fill)
    result[exists] = [value for line in values for value in line]
    return result


def _stripped(row: Row, barred: NDArray[np.bool_], keep: Sequence[str]) -> Row:
    excluded = row.excluded_ids.union(row.negative_ids[place] for place in np.flatnonzero(barred))
    return replace(row, excluded_ids=excluded, judged={name: row.judged[name] for name in keep})
