"""Splits that depend on the seed and the query id alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def position(seed: int, purpose: str, identifiers: Sequence[str]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every identifier, the same in every process and for every order.

    Examples
    --------
    >>> bool((position(1, "split", ["a", "b"]) == position(1, "split", ["b", "a"])[::-1]).all())
    True
    """
    words = b"".join(
        hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{name}".encode(), digest_size=8).digest() for name in identifiers
    )
    # The top 53 bits fit a float exactly, so 1.0 cannot come out by rounding.
    return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


def first_with_same(identifiers: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return for every identifier the smallest one that has the same text.

    Hashing this instead of the identifier itself keeps queries of one text in one split.

    Examples
    --------
    >>> first_with_same(["c", "b", "a"], ["x", "y", "x"])
    ['a', 'b', 'a']
    """
    smallest: dict[str, str] = {}
    for name, text in zip(identifiers, texts, strict=True):
        smallest[text] = min(smallest.get(text, name), name)
    return [smallest[text] for text in texts]


def cut(identifiers: Sequence[str], seed: int, *, dev_share: float = 0.0, test_share: float = 0.0) -> NDArray[np.str_]:
    """Cut dev and test from training queries.

    Parameters
    ----------
    identifiers
        What is hashed: a query's own id, or that of the group it must stay with.
    seed
        Keys the hash.
    dev_share, test_share
        Expected shares in [0, 1); 0 cuts nothing.

    Returns
    -------
    numpy.ndarray
        ``train``, ``dev`` or ``test`` for every identifier.
    """
    place = position(seed, "split", identifiers)
    return np.select([place < test_share, place < test_share + dev_share], ["test", "dev"], default="train")


def choose(identifiers: Sequence[str], count: int, seed: int) -> NDArray[np.bool_]:
    """Choose ``count`` identifiers by their hash; a larger count contains every smaller one."""
    order = np.argsort(position(seed, "subset", identifiers), kind="stable")
    chosen = np.zeros(len(identifiers), bool)
    chosen[order[:count]] = True
    return chosen
