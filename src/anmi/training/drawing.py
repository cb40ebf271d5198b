"""Negatives drawn in every step by a SimANS whose a and b are learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from anmi import seeds
from anmi.training.batch import Row
from anmi.training.losses.drawn import SLOT, DrawnBySimAns

STREAM: Final = "training/simans"


class SimAnsSampler:
    """Draws the negatives of a step from each row's pool by the present a and b, without replacement.

    The draw is exact: the Gumbel top-k of the pool. How far a softmax in its place would have drawn each candidate is
    left with the loss of the step, which has its gradient. What weighs nothing, or has no score, is never drawn. The
    draws of a row depend on seed, step, row, a and b only.

    Parameters
    ----------
    rows
        All training rows with all that was mined for them, judged in what the form reads.
    count
        Negatives a row brings.
    seed
        Of the training.
    loss
        That of the training, with what is learned of the draw.
    column
        Judgment that chances go by.
    keep
        Judgments that the loss reads; others are not carried into the batches.
    """

    def __init__(
        self, rows: Sequence[Row], count: int, seed: int, loss: DrawnBySimAns, column: str, keep: Sequence[str] = ()
    ) -> None:
        lengths = np.array([len(row.negatives) for row in rows])
        self._places = np.arange(max(int(lengths.max(initial=0)), 1), dtype=np.int32)
        exists = self._places < lengths[:, None]
        self._scores, weights = np.full(exists.shape, np.nan), np.zeros(exists.shape)
        # Behind those of the negatives there may be what was judged of uncertain documents.
        self._scores[exists] = [value for row in rows for value in row.judged[column][1][: len(row.negatives)]]
        weights[exists] = [weight for row in rows for weight in row.weights]
        self._own = np.array([row.judged[column][0] for row in rows])[:, None]
        self._usable = (weights > 0) & np.isfinite(self._scores)
        if loss.drawing.form == "score":
            self._usable &= np.isfinite(self._own)
        self._rows = [replace(row, judged={name: row.judged[name] for name in keep}) for row in rows]
        self._keys = [f"{row.query_id}\x1f{row.positive_id}" for row in rows]
        self._count, self._seed, self._loss = count, seed, loss

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        names = [self._keys[number] for number in rows.tolist()]
        slots = np.broadcast_to(self._places, (len(rows), len(self._places)))
        uniform = seeds.uniform(self._seed, f"{STREAM}/{step}", names, slots)
        drawing = self._loss.drawing
        device = drawing.b.device
        scores, own, usable, uniforms = (
            torch.from_numpy(each).to(device)
            for each in (np.nan_to_num(self._scores[rows]), self._own[rows], self._usable[rows], uniform)
        )
        keys = drawing.keys(scores, own, usable, uniforms)
        self._loss.relaxed = drawing.relaxed(keys, usable, self._count, self._loss.relaxation)
        order = torch.argsort(keys.detach(), dim=1, descending=True, stable=True)[:, : self._count].cpu().numpy()
        taken = np.take_along_axis(self._usable[rows], order, axis=1).sum(axis=1)
        return [
            _placed(self._rows[number], line[:count])
            for number, line, count in zip(rows.tolist(), order.tolist(), taken.tolist(), strict=True)
        ]


def _placed(row: Row, places: list[int]) -> Row:
    """Return a row with some of its negatives, and with where in its pool they stand as a judgment of them."""
    drawn = row.pick(places)
    slots = (*map(float, places), *(math.nan for _ in row.uncertain))
    return replace(drawn, judged={**drawn.judged, SLOT: (math.nan, slots)})
