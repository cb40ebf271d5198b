"""The terms that training data contained, small enough to keep, so that later data can be asked for new ones."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from anmi.evaluation.binned import Shares, Tally

# Of these a term is kept by 32 bits. A term that is new passes for a known one with a probability of the number of
# terms over 2³²: below 0.005 % at 200,000 terms; 64 bits would take twice the room for less than is ever measured.
_BITS: Final = 32
_BLOCK: Final = 5_000

Tokenize = Callable[[Sequence[str]], list[list[str]]]


def read_terms(
    documents: Sequence[str],
    queries: Sequence[str],
    labels: tuple[NDArray[Any], NDArray[Any]],
    tokenize: Tokenize,
    *,
    most: int,
    lengths: Mapping[str, Tally],
) -> dict[str, Any]:
    """Return the vocabulary of documents and queries, and count their lengths on the way.

    Parameters
    ----------
    documents, queries
        N and Q texts.
    labels
        Rows of queries and rows of documents that belong together, aligned.
    tokenize
        From texts to lists of terms.
    most
        Terms kept at most. Beyond it the rarest are left out, all of one document frequency together.
    lengths
        ``documents`` and ``queries``: what the number of terms of each text is added to.

    Returns
    -------
    dict
        ``terms`` (how many), ``least`` (every term of at least that many texts is kept, and no other), ``occurrences``
        of ``documents`` and ``queries``, ``expected`` (shares of new terms, see below) and ``encoded`` (for
        :func:`new_term_shares`). ``expected`` is what a text of the same kind would show: the share of occurrences
        whose term no other text contains, but for those labelled as belonging to it, since a new query comes with
        new documents.

    Examples
    --------
    >>> lengths = {"documents": Tally([2.0]), "queries": Tally([2.0])}
    >>> none = (np.zeros(0, int), np.zeros(0, int))
    >>> split = lambda texts: [text.split() for text in texts]
    >>> found = read_terms(["a b", "a c"], ["a"], none, split, most=10, lengths=lengths)
    >>> found["terms"], found["expected"]["documents"]["share"], found["expected"]["queries"]["share"]
    (3, 0.5, 0.0)
    """
    ids: dict[str, int] = {}
    parts = {
        "documents": _rows(documents, tokenize, ids, lengths["documents"]),
        "queries": _rows(queries, tokenize, ids, lengths["queries"]),
    }
    width = max(len(ids), 1)
    counts = {
        name: csr_array((np.ones(len(terms), np.int32), terms, offsets), shape=(len(offsets) - 1, width))
        for name, (terms, offsets) in parts.items()
    }
    for matrix in counts.values():
        matrix.sum_duplicates()
    present = {name: (matrix > 0).astype(np.int32) for name, matrix in counts.items()}
    frequency = sum(np.asarray(matrix.sum(axis=0)).ravel() for matrix in present.values())
    least = _least(np.asarray(frequency), most)
    pairs = csr_array((np.ones(len(labels[0]), np.int32), labels), shape=(len(queries), len(documents)))
    own = {"documents": pairs.T @ present["queries"], "queries": pairs @ present["documents"]}
    expected = {
        name: _expected(counts[name], present[name], own[name], np.asarray(frequency), least) for name in counts
    }
    kept = np.flatnonzero(np.asarray(frequency)[: len(ids)] >= least)
    names = list(ids)
    occurrences = {name: np.asarray(matrix.sum(axis=0)).ravel()[kept] for name, matrix in counts.items()}
    return {
        "terms": len(kept),
        "least": least,
        "occurrences": {name: int(matrix.sum()) for name, matrix in counts.items()},
        "expected": expected,
        "encoded": _encode([names[i] for i in kept.tolist()], occurrences["documents"], occurrences["queries"]),
    }


def new_term_shares(reference: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of occurrences in current documents and queries whose term the reference does not have.

    Parameters
    ----------
    reference, current
        As :func:`read_terms` returns. Terms that were left out of either count as new.

    Returns
    -------
    dict
        ``documents`` and ``queries``, in [0, 1]; those without any occurrence are left out.
    """
    known = _decode(reference["encoded"])[0]
    hashes, *occurrences = _decode(current["encoded"])
    old = np.isin(hashes, known)
    totals = current["occurrences"]
    return {
        name: 1 - float(mine[old].sum()) / totals[name]
        for name, mine in zip(("documents", "queries"), occurrences, strict=True)
        if totals[name]
    }


def _rows(
    texts: Sequence[str], tokenize: Tokenize, ids: dict[str, int], lengths: Tally
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return term numbers of all texts one after another and where each text starts; new terms are added to ``ids``."""

    def blocks() -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        for start in range(0, len(texts), _BLOCK):
            rows = tokenize(texts[start : start + _BLOCK])
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            numbers = (ids.setdefault(term, len(ids)) for term in chain.from_iterable(rows))
            yield np.fromiter(numbers, np.int32, int(sizes.sum())), sizes

    found = list(blocks())
    sizes = np.concatenate([np.zeros(1, np.int64), *(size for _, size in found)])
    lengths.add(sizes[1:])
    return np.concatenate([np.zeros(0, np.int32), *(terms for terms, _ in found)]), np.cumsum(sizes)


def _least(frequency: NDArray[Any], most: int) -> int:
    """Return the smallest document frequency that at most ``most`` terms reach."""
    if len(frequency) <= most:
        return 1
    return int(np.partition(frequency, len(frequency) - most - 1)[len(frequency) - most - 1]) + 1


def _expected(counts: Any, present: Any, own: Any, frequency: NDArray[Any], least: int) -> dict[str, Any]:
    """Return the share of occurrences whose term too few other texts have; a text's own labelled ones do not count."""
    # Adding the text itself gives both arrays one pattern: that of the text's terms.
    taken = (present + own.multiply(present)).tocsr()
    taken.sort_indices()
    counts = counts.copy()
    counts.sort_indices()
    sizes = np.asarray(counts.sum(axis=1)).ravel()
    counts.data = np.where(frequency[taken.indices] - taken.data < least, counts.data, 0)
    shares = Shares()
    shares.add({"new": np.asarray(counts.sum(axis=1)).ravel()}, sizes)
    return shares.as_dict().get("new", {})


def _encode(terms: Sequence[str], *occurrences: NDArray[Any]) -> str:
    """Return sorted hashes, as differences, and the occurrences of each as compressed text."""
    hashed = np.frombuffer(
        b"".join(hashlib.blake2b(term.encode(), digest_size=_BITS // 8).digest() for term in terms), "<u4"
    )
    hashes, place = np.unique(hashed, return_inverse=True)
    columns = [np.diff(hashes, prepend=np.uint32(0))]
    columns += [np.bincount(place, weights=mine, minlength=len(hashes)) for mine in occurrences]
    raw = b"".join(np.minimum(column, 2**_BITS - 1).astype("<u4").tobytes() for column in columns)
    return base64.b64encode(zlib.compress(raw, 9)).decode("ascii")


def _decode(encoded: str) -> NDArray[np.uint64]:
    """Return hashes, occurrences in documents and in queries, [3, terms]."""
    columns = np.frombuffer(zlib.decompress(base64.b64decode(encoded)), "<u4").reshape(3, -1).astype(np.uint64)
    columns[0] = np.cumsum(columns[0])
    return columns
