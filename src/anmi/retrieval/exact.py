"""Blocked matrix products with a running threshold find exact nearest neighbours.

The last bits of a matrix product depend on the shape of its blocks and on the number of threads. So
products only choose whom to score: a document stays as long as rounding may hide that it is among
the best, and what stays is scored by one formula that looks at nothing but the two vectors. Results
are the same for any blocks, shards, threads and devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from anmi.ragged import Float32s, Int32s, Int64s, in_rows


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
# Of lengths; what TF32 rounds off at most, once a torch that we do not own is set to use it. By
# bfloat16 processors multiply five times as fast, but it hides which of ten times as many documents
# are the nearest of a million, and the search takes two to five times as long.
_CARD_SLACK: Final = 2.0**-8
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


def nearest(
    queries: Float32s,
    embeddings: Float32s,
    k: int,
    longest: float = 1.0,
    device: str | None = None,
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
    if device is None and len(queries) * len(embeddings) >= _WORTH:
        device = card()
    rows = _CARD_ROWS if device else _ROWS
    step = max(1, min(rows, _CELLS // max(k, 1)))
    for start in range(0, len(queries) if k else 0, step):
        block = np.ascontiguousarray(queries[start : start + step], np.float32)
        candidates = _among_the_best(block, embeddings, k, longest, device)
        # Vectors of a training that diverged are NaN, and nothing is near them.
        products = np.nan_to_num(similarities(block, embeddings, candidates), nan=-np.inf)
        order = np.lexsort((candidates, -products))[:, :k]
        documents[start : start + step] = in_rows(candidates, order)
        scores[start : start + step] = in_rows(products, order)
    return documents, scores


def product(queries: Any, block: Float32s, room: Float32s) -> Any:
    """Multiply with a block of documents where the queries are; NumPy does so into ``room``."""
    if isinstance(queries, np.ndarray):
        return np.matmul(queries, block.T, out=room[:, : len(block)])
    return queries @ queries.new_tensor(np.ascontiguousarray(block)).T


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


def _among_the_best(
    queries: Float32s,
    embeddings: Float32s,
    k: int,
    longest: float,
    device: str | None,
) -> Int32s:
    """Return all documents that, by rounding, may be among a query's k best, int32 [Q, ≥ k]."""
    count, size = embeddings.shape
    # Both sums of D products are off by D roundings at most, each way.
    reach = np.maximum(lengths(queries) * np.float32(longest), np.float32(1))
    rounding = 4 * size * np.finfo(np.float32).eps
    slack = reach * np.float32(rounding + _CARD_SLACK if device else rounding)
    threshold = np.full(len(queries), -np.inf, np.float32)
    rows = np.zeros(0, np.int64)
    documents = np.zeros(0, np.int64)
    values = np.zeros(0, np.float32)
    room = np.empty((0 if device else len(queries), min(_BLOCK, count)), np.float32)
    left: Any = queries
    if device:
        import torch

        left = torch.tensor(queries, device=device)
    for start in range(0, count, _BLOCK):
        block = embeddings[start : start + _BLOCK]
        scores = product(left, block, room)
        if start == 0 and len(block) > k:
            threshold = _kth_best(scores, k) - slack
        row, column, high = _reaching(scores, threshold)
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
    place = _places(rows, len(queries))
    width = max(int(place.max(initial=-1)) + 1, k)
    candidates = np.full((len(queries), width), -1, np.int32)
    candidates[rows, place] = documents
    return candidates
