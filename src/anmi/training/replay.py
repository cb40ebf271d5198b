"""What a training would have drawn for rows that it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import pandas as pd

from anmi.training.batch import Row
from anmi.training.curriculum import State
from anmi.training.drawn import DrawnNegatives
from anmi.training.options import TrainingOptions
from anmi.training.options.curricula import WindowOptions
from anmi.training.sampler import build_sampler

# Every row is drawn for in every step here, while training does so once an epoch; more steps tell nothing new.
_MOST_STEPS: Final = 200


def drawn_again(rows: Sequence[Row], options: TrainingOptions, log: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Draw the negatives of rows as a training drew those of its own, under the states of its curriculum.

    Whether a training draws clean negatives shows on rows with planted truth, and those must not be trained on.

    The rows have all negatives that the recipe chose for them, its pool; the log has a row a step, with ``difficulty,
    low, high, negatives`` where there was a curriculum. Returns ``query_id, document_id, count`` over at most 200
    steps, evenly spread over the training.

    Raises
    ------
    AnmiError
        No row has more negatives than a step takes.
    """
    # Stands for a curriculum whose states are known.
    curriculum = SimpleNamespace(state=None) if isinstance(options.curriculum, WindowOptions) else None
    sampler = build_sampler(rows, options, cast(Any, curriculum), seed, keep=())
    drawn = DrawnNegatives((row.query_id for row in rows), seed, most=len(rows))
    steps = log.iloc[np.unique(np.linspace(0, len(log) - 1, min(len(log), _MOST_STEPS)).astype(int))]
    for step in steps.to_dict("records"):
        if curriculum is not None:
            curriculum.state = State(step["difficulty"], step["low"], step["high"], round(step["negatives"]))
        drawn.add(sampler(np.arange(len(rows)), int(step["step"]) - 1))
    return drawn.table()
