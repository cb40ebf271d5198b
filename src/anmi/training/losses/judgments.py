"""What judges said, as losses learn it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anmi.errors import AnmiError
from anmi.training.batch import Row
from anmi.training.facts import Facts


def judgments(facts: Facts, column: str) -> tuple[Tensor, Tensor]:
    """Return the judgments of each row's own positive [B] and of every document for every row [B, N]; NaN is unknown.

    A positive whose ``p_relevant`` is unknown has 1: the label says that it is relevant, and judges that weigh
    candidates against the positive have nothing to say of itself.

    Raises
    ------
    AnmiError
        The facts lack the column.
    """
    if column not in facts.judged or column not in facts.positive_judged:
        raise AnmiError(
            f"This loss learns {column}: give it facts with `positive_judged` and `judged` that hold {column}."
        )
    own = facts.positive_judged[column]
    return (torch.where(torch.isnan(own), 1.0, own) if column == "p_relevant" else own), facts.judged[column]


def all_judgments(rows: Sequence[Row], column: str) -> NDArray[np.float64]:
    """Return all that judges said in a training set, [n]; for the check, and for the scale of Elo.

    Raises
    ------
    AnmiError
        They said nothing of any negative, so that there is nothing to learn.
    """
    own = np.array([row.judged[column][0] for row in rows], np.float64)
    others = np.array([value for row in rows for value in row.judged[column][1]], np.float64)
    if not np.isfinite(others).any():
        raise AnmiError(
            f"The loss learns {column}, and no negative of the training rows has one: name `{column}` under `reads` of "
            "the recipe and run the mining again, or choose another loss."
        )
    found = np.concatenate([own, others])
    return found[np.isfinite(found)]
