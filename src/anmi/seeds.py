"""Random streams that depend on (seed, step, query) and on nothing else.

A draw keyed this way is the same whatever the shard size, the number of workers, the engine or the
order of the candidates. ``stream`` gives a NumPy generator for one query; ``uniform`` gives one
number for every (query, document) slot of a block at once, by evaluating the same Philox counter
cipher on whole arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# What every library that is seeded takes; larger ones would be cut or refused by some.
LIMIT: Final = 2**32

# Multipliers and Weyl constants of Philox4x64-10 (Salmon et al., SC 2011, table 2).
_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def is_seed(value: Any) -> bool:
    """Tell whether a value is a whole number from 0 to 2³² − 1.

    Examples
    --------
    >>> is_seed(7), is_seed(-1), is_seed(2**32), is_seed(True), is_seed("7")
    (True, False, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LIMIT


def key(seed: int, step: str, query_id: str) -> NDArray[np.uint64]:
    """Return the 128-bit Philox key of one query as two unsigned 64-bit words.

    Examples
    --------
    >>> key(1, "random", "q1").shape
    (2,)
    """
    text = f"{seed}\x1f{step}\x1f{query_id}".encode()
    return np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), dtype=np.uint64)


def stream(seed: int, step: str, query_id: str = "") -> np.random.Generator:
    """Return the generator that belongs to (seed, step, query).

    Examples
    --------
    >>> bool(stream(1, "split", "q1").random() == stream(1, "split", "q1").random())
    True
    """
    return np.random.Generator(np.random.Philox(key=key(seed, step, query_id)))


def _multiply(a: np.uint64, b: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """High and low words of the 128-bit product, from four 32-bit products."""
    a_low = a & _LOW
    a_high = a >> _HALF
    b_low = b & _LOW
    b_high = b >> _HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> _HALF)
    cross = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (cross >> _HALF), a * b


def uniform(
    seed: int, step: str, query_ids: Sequence[str] | NDArray[np.str_], documents: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Draw one uniform number in [0, 1) for every (query, document) slot.

    Parameters
    ----------
    seed, step
        Name the stream; ``step`` separates the draws of two samplers that see the same query.
    query_ids
        Q identifiers.
    documents
        Document indexes, shape [Q, M]; a document has the same number wherever it stands in the
        row.

    Returns
    -------
    numpy.ndarray
        Shape [Q, M].
    """
    with np.errstate(over="ignore"):
        words = np.array([key(seed, step, str(q)) for q in query_ids], dtype=np.uint64).reshape(
            -1, 2
        )
        k0 = words[:, :1]
        k1 = words[:, 1:]
        c0 = documents.astype(np.int64).astype(np.uint64)
        c1, c2, c3 = (np.zeros_like(c0) for _ in range(3))
        for _ in range(10):
            high0, low0 = _multiply(_MULTIPLIERS[0], c0)
            high1, low1 = _multiply(_MULTIPLIERS[1], c2)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0 = k0 + _WEYL[0]
            k1 = k1 + _WEYL[1]
        result: NDArray[np.float64] = (c0 >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result


def position(seed: int, purpose: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every text, the same in every process and for every order.

    Splits depend on texts: an id says nothing of what is asked. Were it hashed, queries of one text
    could fall into two splits, or a query move to another one when its text comes again under
    another id.

    Examples
    --------
    >>> bool((position(1, "split", ["a", "b"]) == position(1, "split", ["b", "a"])[::-1]).all())
    True
    """
    keys = (f"{seed}\x1f{purpose}\x1f{text}".encode() for text in texts)
    words = b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys)
    # The top 53 bits fit a float exactly, so 1.0 cannot come out by rounding.
    return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


def cut(
    texts: Sequence[str], seed: int, *, dev_share: float = 0.0, test_share: float = 0.0
) -> NDArray[np.str_]:
    """Cut dev and test from training queries.

    Parameters
    ----------
    texts
        Of the queries, see :func:`anmi.corpus.texts.without_signs`.
    seed
        Keys the hash.
    dev_share, test_share
        Expected shares in [0, 1); 0 cuts nothing.

    Returns
    -------
    numpy.ndarray
        ``train``, ``dev`` or ``test`` for every text; equal texts get the same.
    """
    positions = position(seed, "split", texts)
    return np.select(
        [positions < test_share, positions < test_share + dev_share],
        ["test", "dev"],
        default="train",
    )


def choose(texts: Sequence[str], count: int, seed: int) -> NDArray[np.bool_]:
    """Choose ``count`` texts by their hash, bool [N]; a larger count contains every smaller one."""
    order = np.argsort(position(seed, "subset", texts), kind="stable")
    chosen = np.zeros(len(texts), bool)
    chosen[order[:count]] = True
    return chosen
