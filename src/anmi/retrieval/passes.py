"""Which texts go through a network at once: of like length, and on a processor as many as its caches are good for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi.retrieval.kinds import device

# On a processor more are slower, since what layers pass on no longer fits its caches. A GPU takes all it is given.
TOKENS: Final = 2048
# UTF-8 bytes of a token, rather too few: words of Latin letters have 4 to 5, a Korean or Chinese character 3.
_BYTES: Final = 3


def passes(texts: Sequence[str], most: int, longest: int | None = None) -> list[NDArray[np.int64]]:
    """Group the places of texts for one forward pass each, the longest first.

    Groups are cut within every ``most`` texts, so those of a part that begins at a multiple of it are those of the
    whole: a text has the same company wherever it is computed.

    Parameters
    ----------
    texts
        T texts.
    most
        Texts per pass at most.
    longest
        Tokens that a text is cut to; None for no limit.

    Examples
    --------
    >>> [group.tolist() for group in passes(["a b", "a", "a b c"], most=2)]
    [[2, 0], [1]]
    """
    order = np.argsort([-len(text) for text in texts], kind="stable")
    groups, start = [], 0
    while start < len(order):
        room = most - start % most
        if device() == "cpu":
            tokens = len(texts[order[start]].encode(errors="surrogatepass")) // _BYTES + 2
            room = min(room, max(1, TOKENS // min(tokens, longest or tokens)))
        groups.append(order[start : start + room])
        start += room
    return groups
