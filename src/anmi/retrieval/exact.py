"""Blocked matrix products with a running threshold find exact nearest neighbours.

The last bits of a matrix product depend on the shape of its blocks and on the number of threads. So
products only choose whom to score: a document stays as long as rounding may hide that it is among
the best, and what stays is scored by one formula that looks at nothing but the two vectors. Results
are the same for any blocks, shards, threads and devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.ragged import Float32s, Int32s, Int64s, in_rows
from anmi.retrieval.kinds import resolve_precision


def best(full: Float32s, k: int) -> tuple[Int32s, Float32s]:
    """Return the k best documents with their scores, [Q, k]; -1 and 0 where a score is 0.

    Parameters
    ----------
    full
        Scores of all documents, none below 0, float32 [Q, N].
    k
        At most N. Equal scores stand in the order of the corpus.

    Examples
    --------
    >>> best(np.array([[1.0, 0.0, 3.0, 1.0]], np.float32), 4)[0].tolist()
    [[2, 0, 3, -1]]
    """
    from anmi.retrieval.sums import best_of_rows

    keys = np.zeros((len(full), k), np.uint64)
    best_of_rows(np.ascontiguousarray(full, np.float32), keys)
    keys = np.sort(~keys)
    documents = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    score_bits = ~(keys >> np.uint64(32)).astype(np.uint32)
    return documents.view(np.int32), score_bits.view(np.float32)


# By which half precision changes the length of a vector at most.
_ROUNDING: Final = 0.01
# Of one product: enough of both for BLAS to be at its best, and scores that stay in the processor's
# last cache.
_ROWS: Final = 512
_BLOCK: Final = 8192
# Of queries and wanted documents, which bounds memory where all documents are wanted.
_CELLS: Final = 4_000_000
# On a card, which takes more: each block of documents travels once for so many queries.
_CARD_ROWS: Final = 8192
# Scores from which on a product is worth starting torch and moving the documents to a card.
_WORTH: Final = 2**26
# Of lengths; what TF32 rounds off at most, once a torch that we do not own is set to use it.
_CARD_SLACK: Final = 2.0**-8
# What is rounded off a sum that is written in bfloat16, of its size.
_GRAIN: Final = 2.0**-8 + 2.0**-15
# Products from which on a processor that multiplies bfloat16 makes up for torch's start.
_WORTH_ROUNDING: Final = 2**42
_CARDS: Final = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
# Documents kept for each that is wanted before those below the threshold are dropped again.
_KEPT: Final = 4


def similarities(queries: Float32s, embeddings: Float32s, documents: Int32s) -> Float32s:
    """Inner products of queries with documents of theirs, float32 [Q, M]; NaN in padding.

    ``queries`` are [Q, D], ``embeddings`` [N, D] and ``documents`` [Q, M].
    """
    from anmi.retrieval.sums import dot_products

    products = np.empty(documents.shape, np.float32)
    queries = np.ascontiguousarray(queries, np.float32)
    dot_products(queries, np.asarray(embeddings), documents, products)
    products[documents < 0] = np.nan
    return products


def lengths(vectors: Float32s) -> Float32s:
    """Return the length of each vector, [N], of float32 [N, D].

    Examples
    --------
    >>> lengths(np.array([[3, 4]], np.float32)).tolist()
    [5.0]
    """
    return np.asarray(np.sqrt(np.einsum("nd,nd->n", vectors, vectors)), np.float32)


def of_one_length(sizes: Float32s) -> bool:
    """Tell whether lengths are 1, but for the rounding of half precision, or all 0."""
    deviation = abs(sizes.max(initial=0) - 1)
    return not (deviation > _ROUNDING and sizes.any())


def directions(vectors: Float32s) -> Float32s:
    """Return vectors at length 1, float32 [N, D]; unchanged if they have it but for rounding.

    Examples
    --------
    >>> directions(np.array([[0, 4], [0, 0]], np.float32)).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    sizes = lengths(vectors)
    if of_one_length(sizes):
        return vectors
    divisors = np.maximum(sizes, np.float32(1e-12))
    return np.asarray(vectors / divisors[:, None], np.float32)


def card() -> str | None:
    """Return the device of a card; None without one, for which torch is not imported."""
    if not any(Path(name).exists() for name in _CARDS):
        return None
    import torch

    return "cuda" if torch.cuda.is_available() else None


class Rounded(NamedTuple):
    """Vectors in bfloat16, which some processors multiply two to five times as fast.

    Attributes
    ----------
    numbers
        Bits of the vectors, uint16 [N, D].
    errors
        Length of what was rounded off each vector, float32 [N].
    """

    numbers: NDArray[np.uint16]
    errors: Float32s


def rounded(vectors: Float32s) -> Rounded:
    """Round vectors, [N, D], to the nearest numbers of bfloat16.

    Examples
    --------
    >>> numbers, errors = rounded(np.array([[1.0, 1.01]], np.float32))
    >>> [f"{number:x}" for number in numbers[0]], round(float(errors[0]), 5)
    (['3f80', '3f81'], 0.00219)
    """
    numbers = np.empty(vectors.shape, np.uint16)
    errors = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), _BLOCK):
        rows = slice(start, start + _BLOCK)
        block = np.ascontiguousarray(vectors[rows])
        bits = block.view(np.uint32)
        is_odd = (bits >> 16) & 1
        high_bits = (bits + 0x7FFF + is_odd) >> 16
        numbers[rows] = high_bits
        errors[rows] = lengths(block - (high_bits << 16).view(np.float32))
    return Rounded(numbers, errors)


def rounded_if_worth(vectors: Float32s | None, query_count: int) -> Rounded | None:
    """Return vectors in bfloat16 where so many queries are searched faster by them."""
    if vectors is None or query_count * vectors.size < _WORTH_ROUNDING or card():
        return None
    has_bfloat16 = resolve_precision("auto", "cpu") == "bfloat16"
    return rounded(vectors) if has_bfloat16 else None


def nearest(
    queries: Float32s,
    embeddings: Float32s,
    k: int,
    longest: float = 1.0,
    device: str | None = None,
    rounded_embeddings: Rounded | None = None,
) -> tuple[Int32s, Float32s]:
    """Return the k nearest documents of each query.

    Parameters
    ----------
    queries, embeddings
        Vectors, float32 [Q, D] and [N, D].
    k
        At most N.
    longest
        Length of the longest of the embeddings.
    device
        Of torch, which multiplies; it changes no result. None: the card where there is one and
        enough to do, else NumPy.
    rounded_embeddings
        What the processor multiplies first, if anything; it changes no result.

    Returns
    -------
    documents, scores
        int32 and float32 [Q, k], best first; equal scores stand in the order of the corpus. -1 and
        -inf where vectors are NaN.

    Examples
    --------
    >>> vectors = np.eye(3, dtype=np.float32)
    >>> nearest(vectors[:1], vectors, 2)[0].tolist()
    [[0, 1]]
    """
    embeddings = np.asarray(embeddings)
    documents = np.empty((len(queries), k), np.int32)
    scores = np.empty((len(queries), k), np.float32)
    is_rounded = rounded_embeddings is not None
    if device is None and not is_rounded and len(queries) * len(embeddings) >= _WORTH:
        device = card()
    rows = _CARD_ROWS if device else _ROWS
    step = max(1, min(rows, _CELLS // max(k, 1)))
    for start in range(0, len(queries) if k else 0, step):
        block = np.ascontiguousarray(queries[start : start + step], np.float32)
        candidates = _among_the_best(block, embeddings, k, longest, device, rounded_embeddings)
        # Vectors of a training that diverged are NaN, and nothing is near them.
        products = np.nan_to_num(similarities(block, embeddings, candidates), nan=-np.inf)
        order = np.lexsort((candidates, -products))[:, :k]
        documents[start : start + step] = in_rows(candidates, order)
        scores[start : start + step] = in_rows(products, order)
    return documents, scores


def product(queries: Any, block: NDArray[Any], room: Float32s) -> Any:
    """Multiply with a block of documents where the queries are; NumPy does so into ``room``."""
    if isinstance(queries, np.ndarray):
        return np.matmul(queries, block.T, out=room[:, : len(block)])
    if block.dtype == np.uint16:
        products = queries @ _bfloat16(block).T
        return products.float().numpy()
    return queries @ queries.new_tensor(np.ascontiguousarray(block)).T


def _bfloat16(numbers: NDArray[np.uint16]) -> Any:
    import torch

    return torch.tensor(numbers.view(np.int16)).view(torch.bfloat16)


def _kth_best(scores: Any, k: int) -> Float32s:
    """Return the k-th best of more than k scores of each query, float32 [Q]."""
    if isinstance(scores, np.ndarray):
        return np.asarray(np.partition(scores, -k, axis=1)[:, -k])
    return np.asarray(scores.topk(k)[0][:, -1].cpu())


def _reaching(scores: Any, threshold: Float32s) -> tuple[Int64s, Int64s, Float32s]:
    """Return row, column and value of the scores that reach the threshold of their row."""
    if isinstance(scores, np.ndarray):
        high = np.flatnonzero(scores >= threshold[:, None])
        row, column = np.divmod(high, scores.shape[1])
        return row, column, scores[row, column]
    is_high = scores >= scores.new_tensor(threshold)[:, None]
    places = is_high.nonzero(as_tuple=True)
    tensors = (*places, scores[places])
    row, column, values = (np.asarray(tensor.cpu()) for tensor in tensors)
    return row, column, values


def _places(rows: Int64s, count: int) -> Int64s:
    """Return the place of each entry in its row, from 0, of ``count`` rows in order."""
    starts = np.searchsorted(rows, np.arange(count))
    return np.arange(len(rows)) - starts[rows]


class _Factors(NamedTuple):
    """What is multiplied, queries and documents, and by how much products may be too low.

    That is ``error`` for each query, [Q], and of its size what ``grain`` says.
    """

    queries: Any
    documents: NDArray[Any]
    error: Float32s
    grain: float = 0.0

    @staticmethod
    def of(
        queries: Float32s,
        embeddings: Float32s,
        longest: float,
        device: str | None,
        rounded_embeddings: Rounded | None,
    ) -> _Factors:
        if rounded_embeddings is not None:
            numbers, query_errors = rounded(queries)
            document_error = np.fmax.reduce(rounded_embeddings.errors, initial=0)
            error = lengths(queries) * document_error
            error += query_errors * (np.float32(longest) + document_error)
            return _Factors(_bfloat16(numbers), rounded_embeddings.numbers, error, _GRAIN)
        left: Any = queries
        if device:
            import torch

            left = torch.tensor(queries, device=device)
        return _Factors(left, embeddings, np.zeros(len(queries), np.float32))

    def lowest(self, scores: Float32s) -> Float32s:
        """Return the products at which exact ones may reach these scores, [Q]."""
        if not self.grain:
            return scores
        grain = np.float32(self.grain) * (np.abs(scores) + self.error)
        return scores - self.error - grain


def _among_the_best(
    queries: Float32s,
    embeddings: Float32s,
    k: int,
    longest: float,
    device: str | None,
    rounded_embeddings: Rounded | None,
) -> Int32s:
    """Return all documents that, by rounding, may be among a query's k best, int32 [Q, ≥ k]."""
    count, size = embeddings.shape
    # Both sums of D products are off by D roundings at most, each way.
    reach = np.maximum(lengths(queries) * np.float32(longest), np.float32(1))
    rounding = 4 * size * np.finfo(np.float32).eps
    slack = reach * np.float32(rounding + _CARD_SLACK if device else rounding)
    factors = _Factors.of(queries, embeddings, longest, device, rounded_embeddings)
    threshold = np.full(len(queries), -np.inf, np.float32)
    rows = np.zeros(0, np.int64)
    documents = np.zeros(0, np.int64)
    values = np.zeros(0, np.float32)
    by_numpy = factors.queries is queries
    room = np.empty((len(queries) if by_numpy else 0, min(_BLOCK, count)), np.float32)
    for start in range(0, count, _BLOCK):
        block = factors.documents[start : start + _BLOCK]
        scores = product(factors.queries, block, room)
        if start == 0 and len(block) > k:
            threshold = factors.lowest(_kth_best(scores, k)) - slack
        row, column, high = _reaching(scores, factors.lowest(threshold))
        if factors.grain:
            table = _in_table(row, column + start, len(queries))
            high = similarities(queries, embeddings, table)[row, _places(row, len(queries))]
            is_high = high >= threshold[row]
            row = row[is_high]
            column = column[is_high]
            high = high[is_high]
        rows = np.concatenate([rows, row])
        documents = np.concatenate([documents, column + start])
        values = np.concatenate([values, high])
        if len(rows) > _KEPT * k * len(queries) or start + _BLOCK >= count:
            # Raise the threshold to the k-th best so far, and drop what is below it. In units of
            # what a query can reach values are from -1 to 1.
            order = np.argsort(8.0 * rows - values / reach[rows])
            rows = rows[order]
            documents = documents[order]
            values = values[order]
            is_kth = _places(rows, len(queries)) == k - 1
            np.maximum.at(threshold, rows[is_kth], values[is_kth] - slack[rows[is_kth]])
            is_above = values >= threshold[rows]
            rows = rows[is_above]
            documents = documents[is_above]
            values = values[is_above]
    return _in_table(rows, documents, len(queries), k)


def _in_table(rows: Int64s, documents: Int64s, count: int, width: int = 0) -> Int32s:
    """Return the documents of each of ``count`` rows, which come in order; -1 in padding."""
    place = _places(rows, count)
    table = np.full((count, max(int(place.max(initial=-1)) + 1, width)), -1, np.int32)
    table[rows, place] = documents
    return table
