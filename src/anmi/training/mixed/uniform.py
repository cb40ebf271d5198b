"""Uniform numbers by row and step, cheap enough for every step.

:func:`anmi.seeds.uniform` gives such numbers for any block by a cipher of ten rounds and a hash of every row's name in
every step. Here a row's name is hashed once, and a step takes a dozen operations on the block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anmi import seeds

# Of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


class RowNumbers:
    """Numbers in [0, 1) that depend on the seed, the stream's name, the row, the step and the slot, and nothing else.

    Parameters
    ----------
    seed, stream
        Name the stream, see :mod:`anmi.seeds`.
    rows
        A name of each row; rows of the same name get the same numbers.

    Examples
    --------
    >>> numbers = RowNumbers(1, "example", ["a", "b", "c"])
    >>> two = numbers(np.array([2, 0]), step=5, slots=4)
    >>> two.shape, bool((numbers(np.array([0]), step=5, slots=3) == two[1, :3]).all())
    ((2, 4), True)
    """

    def __init__(self, seed: int, stream: str, rows: Sequence[str]) -> None:
        self._keys = np.array([seeds.key(seed, stream, name)[0] for name in rows], np.uint64)

    def __call__(self, rows: NDArray[np.int64], step: int, slots: int) -> NDArray[np.float64]:
        """Return the numbers of B rows in a step, float64 [B, slots]."""
        # Each row and step begins its own sequence, at a place that nothing but the mixing tells.
        start = _mixed(self._keys[rows] + _mixed(np.array([step], np.uint64) * _GOLDEN + _GOLDEN))
        states = start[:, None] + np.arange(1, slots + 1, dtype=np.uint64) * _GOLDEN
        result: NDArray[np.float64] = (_mixed(states) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return result


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64; arrays of unsigned integers wrap around."""
    values = (values ^ (values >> _SHIFTS[0])) * _FACTORS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _FACTORS[1]
    return values ^ (values >> _SHIFTS[2])
