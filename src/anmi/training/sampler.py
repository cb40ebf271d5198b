"""Which of its mined negatives a row brings to a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from anmi.errors import AnmiError
from anmi.retrieval.encoders import Role
from anmi.training.batch import Row
from anmi.training.curriculum import Curriculum
from anmi.training.drawing import SimAnsSampler
from anmi.training.hardness import HardnessSampler, rated
from anmi.training.losses.drawn import DrawnBySimAns
from anmi.training.mixed import MixedSampler, Stock
from anmi.training.options import TrainingOptions
from anmi.training.options.curricula import WindowOptions
from anmi.training.options.drawing import RandomDraw, SimAnsDraw
from anmi.training.options.hardness import HansOptions
from anmi.training.options.sources import MixedSources, RefreshedSources
from anmi.training.pool import PoolSampler, check_pool
from anmi.training.refreshed import Documents, RefreshedSampler


class NegativeSampler(Protocol):
    """Called once a step, with the rows of the batch; a draw may depend on nothing but the seed, step and row."""

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        ...


class FirstNegatives:
    """The best of each row, the same in every step."""

    def __init__(self, rows: Sequence[Row], count: int | None) -> None:
        self._rows = rows if count is None else [row.pick(range(min(count, len(row.negatives)))) for row in rows]

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers."""
        return [self._rows[number] for number in rows]


def build_sampler(
    rows: Sequence[Row],
    options: TrainingOptions,
    curriculum: Curriculum | None,
    seed: int,
    keep: Sequence[str] | None = None,
    stock: Stock | Documents | None = None,
    dimension: int = 0,
    loss: nn.Module | None = None,
    encode: Callable[[list[str], Role], NDArray[np.float32]] | None = None,
) -> NegativeSampler:
    """Return what chooses the negatives of every step.

    ``rows`` have all negatives that were mined for them. ``keep`` are the judgments that the loss reads (None: all);
    others serve the draw only. ``stock`` is what negatives of mixed or refreshed sources are drawn from, the latter
    as ``encode`` finds them near. ``loss`` learns the draw of ``simans``.

    Raises
    ------
    AnmiError
        There is a curriculum, and no row has more negatives than a step takes; or sources are mixed, and there is
        nothing to draw from.
    """
    if isinstance(options.sources, MixedSources):
        if not isinstance(stock, Stock):
            raise AnmiError(
                "Negatives of mixed sources are drawn from the corpus and what its documents state; give the training "
                "both, as the training stage does."
            )
        if options.negatives is None:
            raise ValueError("mixed sources need to know how many negatives a row is to bring")
        return MixedSampler(rows, options.negatives, seed, stock, options.sources, curriculum, dimension)
    if isinstance(options.sources, RefreshedSources):
        if not isinstance(stock, Documents) or encode is None:
            raise AnmiError(
                "Negatives of refreshed sources are mined while training; give the training the corpus, as the "
                "training stage does. What it would draw for other rows is not known afterwards."
            )
        every = options.sources.every or math.ceil(len(rows) / options.batch_size)
        return RefreshedSampler(rows, options.negatives or 0, seed, stock, options.sources, every, encode)
    keep = tuple(rows[0].judged) if keep is None else keep
    if isinstance(hans := options.hardness, HansOptions):
        inner = _by_options(rated(rows, hans.heuristic), options, curriculum, seed, keep, loss)
        return HardnessSampler(inner, hans.negatives, seed)
    return _by_options(rows, options, curriculum, seed, keep, loss)


def _by_options(
    rows: Sequence[Row],
    options: TrainingOptions,
    curriculum: Curriculum | None,
    seed: int,
    keep: Sequence[str],
    loss: nn.Module | None,
) -> NegativeSampler:
    if curriculum is not None and isinstance(options.curriculum, WindowOptions):
        check_pool(rows, options.negatives)
        return PoolSampler(rows, options.negatives, seed, curriculum, options.curriculum, keep)
    if isinstance(options.draw, SimAnsDraw):
        check_pool(rows, options.negatives)
        if not isinstance(loss, DrawnBySimAns) or options.negatives is None:
            raise ValueError("a learned draw needs the loss that learns it, and how many negatives a row is to bring")
        return SimAnsSampler(rows, options.negatives, seed, loss, options.draw.reads[0], keep)
    if isinstance(options.draw, RandomDraw):
        return PoolSampler(rows, options.negatives, seed, keep=keep)
    return FirstNegatives(rows, options.negatives)
