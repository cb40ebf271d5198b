"""The terms that texts contained, small enough to keep, so that later texts can be asked for new ones."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# A term is kept as 31 bits. One that is new passes for a known one with the probability (terms / 2³¹): below 0.01 % at
# 200,000 terms.
_FEATURES: Final = 2**31 - 1
_BLOCK: Final = 5_000


def read_terms(
    texts: Sequence[str], tokenize: Callable[[Sequence[str]], list[list[str]]], most: int
) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Return the vocabulary of N texts, and how many terms each has, [N].

    Beyond ``most`` terms the rarest are left out, all of one document frequency together. The vocabulary has ``texts``
    (N), ``terms`` (how many are kept), ``occurrences`` (of all terms), ``expected`` and, for :func:`new_term_share`,
    ``encoded``. ``expected`` is the share of occurrences whose term no other text has, which a further text of the same
    kind would show: the estimate of Good and Turing (1953), with texts for draws.

    Examples
    --------
    >>> found, lengths = read_terms(["a b", "a c"], lambda texts: [text.split() for text in texts], most=10)
    >>> found["terms"], found["expected"], lengths.tolist()
    (3, 0.5, [2, 2])
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    if not len(texts):
        return {"texts": 0, "terms": 0, "occurrences": 0, "expected": 0.0, "encoded": _encode()}, np.zeros(0, np.int64)
    blocks = (tokenize(texts[start : start + _BLOCK]) for start in range(0, len(texts), _BLOCK))
    hashing = HashingVectorizer(n_features=_FEATURES, analyzer=list, norm=None, alternate_sign=False)
    counts = hashing.transform(chain.from_iterable(blocks))
    terms, place, frequency = np.unique(counts.indices, return_inverse=True, return_counts=True)
    occurrences = np.bincount(place, weights=counts.data, minlength=len(terms)).astype(np.int64)
    # The smallest document frequency that at most so many terms reach.
    least = 1 if len(terms) <= most else int(np.partition(frequency, len(terms) - most - 1)[len(terms) - most - 1]) + 1
    kept, total = frequency >= least, int(occurrences.sum())
    vocabulary = {
        "texts": len(texts),
        "terms": int(kept.sum()),
        "occurrences": total,
        # What only ``least`` texts have would be left out if one of them were not there.
        "expected": float(occurrences[frequency <= least].sum() / total) if total else 0.0,
        "encoded": _encode(terms[kept], occurrences[kept]),
    }
    return vocabulary, np.asarray(counts.sum(axis=1)).ravel().astype(np.int64)


def new_term_share(reference: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """Return the share of current occurrences whose term the reference does not have, in [0, 1]; of none 0.

    Both as :func:`read_terms` returns; terms left out of either count as new.
    """
    (known, _), (terms, occurrences) = _decode(reference["encoded"]), _decode(current["encoded"])
    total = current["occurrences"]
    return 1 - float(occurrences[np.isin(terms, known)].sum()) / total if total else 0.0


def _encode(terms: Any = (), occurrences: Any = ()) -> str:
    """Return sorted terms, as differences, and the occurrences of each as compressed text."""
    columns = np.array([np.diff(terms, prepend=0), occurrences]).astype("<u4")
    return base64.b64encode(zlib.compress(columns.tobytes(), 9)).decode("ascii")


def _decode(encoded: str) -> NDArray[np.int64]:
    """Return terms and occurrences, [2, terms]."""
    columns = np.frombuffer(zlib.decompress(base64.b64decode(encoded)), "<u4").reshape(2, -1).astype(np.int64)
    columns[0] = np.cumsum(columns[0])
    return columns
