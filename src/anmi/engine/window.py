"""How much may be under way: enough to keep the workers busy, and no more results than memory has room for."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# Each worker has one item at hand and one to go on with.
_AHEAD: Final = 2


def size_of(result: Any) -> int:
    """Return the bytes of a result that is bytes, an array, or some of these; 0 for anything else, which is small.

    Examples
    --------
    >>> size_of(b"abc"), size_of(np.zeros(2)), size_of((b"a", np.zeros(1))), size_of("text")
    (3, 16, 9, 0)
    """
    if isinstance(result, (bytes, bytearray, memoryview)):
        return len(result)
    if isinstance(result, np.ndarray):
        return int(result.nbytes)
    return sum(map(size_of, result)) if isinstance(result, (list, tuple)) else 0


class Window:
    """Limits the items under way by the bytes that their results are likely to take.

    Parameters
    ----------
    workers
        Who work at once, at least 1.
    max_bytes
        Of all results under way; until one has been seen, one item per worker is let in.

    Examples
    --------
    >>> window = Window(workers=2, max_bytes=10)
    >>> window.limit
    2
    >>> window.saw(b"12")
    >>> window.limit
    4
    >>> window.saw(b"1234567890")
    >>> window.limit
    1
    """

    def __init__(self, workers: int, max_bytes: int) -> None:
        self._workers, self._max_bytes, self._largest = workers, max_bytes, 0

    def saw(self, result: Any) -> None:
        """Learn from a result."""
        self._largest = max(self._largest, size_of(result), 1)

    @property
    def limit(self) -> int:
        """Items that may be under way, at least 1."""
        if not self._largest:
            return self._workers
        return max(1, min(_AHEAD * self._workers, self._max_bytes // self._largest))
