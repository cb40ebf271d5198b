"""Splits that depend on the seed and the text of the query alone.

An id says nothing of what is asked: were it hashed, queries of one text could fall into two splits, or a query move to
another one when its text comes again under another id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def position(seed: int, purpose: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every text, the same in every process and for every order.

    Examples
    --------
    >>> bool((position(1, "split", ["a", "b"]) == position(1, "split", ["b", "a"])[::-1]).all())
    True
    """
    words = b"".join(
        hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{text}".encode(), digest_size=8).digest() for text in texts
    )
    # The top 53 bits fit a float exactly, so 1.0 cannot come out by rounding.
    return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


def cut(texts: Sequence[str], seed: int, *, dev_share: float = 0.0, test_share: float = 0.0) -> NDArray[np.str_]:
    """Cut dev and test from training queries.

    Parameters
    ----------
    texts
        Normalised texts of the queries, see :func:`anmi.corpus.duplicates.normalised`.
    seed
        Keys the hash.
    dev_share, test_share
        Expected shares in [0, 1); 0 cuts nothing.

    Returns
    -------
    numpy.ndarray
        ``train``, ``dev`` or ``test`` for every text; equal texts get the same.
    """
    place = position(seed, "split", texts)
    return np.select([place < test_share, place < test_share + dev_share], ["test", "dev"], default="train")


def choose(texts: Sequence[str], count: int, seed: int) -> NDArray[np.bool_]:
    """Choose ``count`` texts by their hash; a larger count contains every smaller one, and of equal texts the first."""
    order = np.argsort(position(seed, "subset", texts), kind="stable")
    chosen = np.zeros(len(texts), bool)
    chosen[order[:count]] = True
    return chosen
