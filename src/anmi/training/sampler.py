"""Which of its mined negatives a row brings to a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anmi.training.batch import Row
from anmi.training.curriculum import Curriculum
from anmi.training.options import TrainingOptions


class NegativeSampler(Protocol):
    """Called once a step, with the rows of the batch; a draw may depend on nothing but the seed, step and row."""

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        ...


class FirstNegatives:
    """The best of each row, the same in every step.

    Parameters
    ----------
    rows
        All training rows.
    count
        Negatives a row brings at most; None is all it has.
    """

    def __init__(self, rows: Sequence[Row], count: int | None) -> None:
        self._rows = rows if count is None else [row.pick(range(min(count, len(row.negatives)))) for row in rows]

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers."""
        return [self._rows[number] for number in rows]


def build_sampler(
    rows: Sequence[Row], options: TrainingOptions, curriculum: Curriculum | None, seed: int
) -> NegativeSampler:
    """Return what chooses the negatives of every step.

    Parameters
    ----------
    rows
        All training rows with all negatives that were mined for them.
    options
        Of the training.
    curriculum
        Whose state each draw goes by; None for none.
    seed
        Of the training.
    """
    return FirstNegatives(rows, options.negatives)
