"""Which candidates a person had best look at first."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import MARKED, NEGATIVE, PADDING, Candidates

_DOUBTED: Final = ("unsafe", "uncertain")
# All that is read of the shards.
DOUBT_COLUMNS: Final = ("p_relevant", MARKED)


def doubt(block: Candidates) -> NDArray[np.float32]:
    """Return how much a mark of each candidate may change, in [0, 1], float32 [Q, M]; 0 where nothing is judged.

    Of a negative it is the probability that it is relevant, and so a false negative. Of what was rejected as perhaps
    relevant it is 2 · min(p, 1 - p), which is 1 where the judges cannot tell. Others decide on nothing.

    Examples
    --------
    >>> documents = np.array([[3, 1]], np.int32)
    >>> block = Candidates(np.array(["q"]), documents[:, :1] + 9, documents, np.ones((1, 2), np.uint8),
    ...                    {"p_relevant": np.array([[0.4, 0.9]], np.float32)}, verdict=np.array([[1, 0]], np.int16))
    >>> doubt(block).round(2).tolist()
    [[0.4000000059604645, 0.0]]
    """
    chance = block.columns.get("p_relevant")
    if chance is None:
        return np.zeros(block.documents.shape, np.float32)
    # A mark that was made before this run settles it.
    settled = block.columns[MARKED] == 0 if MARKED in block.columns else np.zeros(block.documents.shape, bool)
    chance = np.where((block.documents == PADDING) | settled, 0, np.nan_to_num(chance))
    doubted = [code for code, name in enumerate(block.legend) if name in block.rules and
               block.rules[name].kind in _DOUBTED]  # fmt: skip
    unsure = np.where(np.isin(block.verdict, doubted), 2 * np.minimum(chance, 1 - chance), 0)
    return np.where(block.verdict == NEGATIVE, chance, unsure).astype(np.float32)
