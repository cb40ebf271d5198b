"""The nearest documents among those that training encoded last."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anmi.retrieval.kinds import resolve_precision

_HNSW_NEIGHBOURS = 16
# Vectors for each centroid of a product quantiser, and dimensions that share a code.
_POINTS = 8
_PART = 4
# Documents kept of the last steps for one that the ring buffer holds: some are encoded in several steps.
_SPARE = 1.5


class RingBuffer:
    """The embeddings of the documents that were encoded last, each document once.

    A document that is encoded again takes its place anew; where all are taken, the oldest goes.

    Parameters
    ----------
    documents
        Number of documents there are.
    capacity
        Most documents that are held.
    dimension
        Of the embeddings.

    Examples
    --------
    >>> ring = RingBuffer(documents=9, capacity=2, dimension=1)
    >>> for step, document in enumerate([4, 7, 8]):
    ...     ring.add(np.array([document]), np.array([[step]], np.float32), step)
    >>> sorted(ring.held().documents.tolist())
    [7, 8]
    """

    def __init__(self, documents: int, capacity: int, dimension: int) -> None:
        capacity = min(capacity, documents)
        self._vectors = np.zeros((capacity, dimension), np.float32)
        self._documents = np.full(capacity, -1, np.int64)
        self._steps = np.zeros(capacity, np.int64)
        self._slot = np.full(documents, -1, np.int64)
        self._next = 0

    def add(self, documents: NDArray[np.int64], vectors: NDArray[np.float32], step: int) -> None:
        """Take in the embeddings, float32 [n, d], of n different documents as they were in a step."""
        capacity = len(self._documents)
        documents, vectors = documents[:capacity], vectors[:capacity]
        slots = self._slot[documents]
        fresh = slots < 0
        count = int(fresh.sum())
        # Those of this very step must not be what goes.
        busy = np.zeros(capacity, bool)
        busy[slots[~fresh]] = True
        order = (self._next + np.arange(capacity)) % capacity
        free = order[~busy[order]][:count]
        slots[fresh] = free
        gone = self._documents[free]
        self._slot[gone[gone >= 0]] = -1
        self._slot[documents] = slots
        self._documents[slots], self._vectors[slots], self._steps[slots] = documents, vectors, step
        if count:
            self._next = int((free[-1] + 1) % capacity)

    def held(self) -> Snapshot:
        """Return a copy of what is held, in the order of the places."""
        there = self._documents >= 0
        return Snapshot(self._documents[there], self._steps[there], self._vectors[there])

    def tensors(self) -> dict[str, Tensor]:
        """Return all it needs to go on elsewhere."""
        return {
            "vectors": torch.from_numpy(self._vectors),
            "documents": torch.from_numpy(self._documents),
            "steps": torch.from_numpy(self._steps),
            "next": torch.tensor(self._next),
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave."""
        self._vectors = tensors["vectors"].numpy().copy()
        self._documents, self._steps = tensors["documents"].numpy().copy(), tensors["steps"].numpy().copy()
        self._next = int(tensors["next"])
        self._slot[:] = -1
        there = np.flatnonzero(self._documents >= 0)
        self._slot[self._documents[there]] = there


class LastSteps:
    """What the last steps encoded, untouched until it is needed.

    A ring buffer is read when an index is made of it. What is encoded long before is gone by then, so it is not put in
    at all; looking up which documents a step encoded, and copying them, costs more than anything else about the buffer.

    Parameters
    ----------
    number
        From ids to numbers of documents, int64; -1 for what is none.
    enough
        Documents of the newest steps that fill the buffer; older steps are dropped.

    Examples
    --------
    >>> last, ring = LastSteps(lambda ids: np.array([int(name) for name in ids]), enough=2), RingBuffer(9, 2, 1)
    >>> for step, document in enumerate("3478"):
    ...     last.add([document], np.array([[step]], np.float32), 1, step)
    >>> last.into(ring)
    >>> sorted(ring.held().documents.tolist())
    [7, 8]
    """

    def __init__(self, number: Callable[[Sequence[str]], NDArray[np.int64]], enough: int) -> None:
        self._number, self._enough = number, enough
        self._steps: deque[tuple[Sequence[str], NDArray[np.float32], int, int]] = deque()
        self._count = 0

    def add(self, ids: Sequence[str], vectors: NDArray[np.float32], count: int, step: int) -> None:
        """Take in what a step encoded; ``count`` says how many of it are documents."""
        self._steps.append((ids, vectors, count, step))
        self._count += count
        while self._count - self._steps[0][2] >= _SPARE * self._enough:
            self._count -= self._steps.popleft()[2]

    def into(self, ring: RingBuffer) -> None:
        """Put all into the buffer, oldest first, and forget it."""
        while self._steps:
            ids, vectors, _, step = self._steps.popleft()
            numbers = self._number(ids)
            real = np.flatnonzero(numbers >= 0)
            ring.add(numbers[real], vectors[real], step)
        self._count = 0

    def state(self) -> tuple[list[Any], dict[str, Tensor]]:
        """Return all it needs to go on elsewhere, as plain JSON values and tensors."""
        values = [[list(ids), count, step] for ids, _, count, step in self._steps]
        return values, {str(place): torch.from_numpy(vectors) for place, (_, vectors, _, _) in enumerate(self._steps)}

    def load(self, values: list[Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave."""
        self._steps = deque(
            (ids, tensors[str(place)].numpy().copy(), count, step) for place, (ids, count, step) in enumerate(values)
        )
        self._count = sum(count for _, count, _ in values)


@dataclass(frozen=True)
class Snapshot:
    """Documents, the steps in which they were encoded, and their embeddings, float32 [n, d]."""

    documents: NDArray[np.int64]
    steps: NDArray[np.int64]
    vectors: NDArray[np.float32]


class LatentIndex:
    """Searches a snapshot of a :class:`RingBuffer` that is made anew every so many steps.

    Making a flat index is a copy. An HNSW graph is built, and a product quantiser trained, in a thread beside the
    training, and taken up when the next one is due, whenever it was ready, so that a run gives the same negatives on
    any machine.

    Parameters
    ----------
    refresh
        Steps between two snapshots.
    kind
        ``flat``, ``hnsw`` or ``pq``.
    """

    def __init__(self, refresh: int, kind: Literal["flat", "hnsw", "pq"]) -> None:
        self._refresh, self._kind = refresh, kind
        self._snapshot: Snapshot | None = None
        self._index: Any = None
        self._coming: tuple[Snapshot, Future[Any]] | None = None
        self._pool = ThreadPoolExecutor(1, "anmi-latent-index") if kind != "flat" else None

    @property
    def snapshot(self) -> Snapshot | None:
        """What is searched; None before the first was made."""
        return self._snapshot

    def is_due(self, step: int) -> bool:
        """Return whether :meth:`update` makes the index anew after so many steps."""
        return step % self._refresh == 0

    def update(self, step: int, ring: RingBuffer) -> None:
        """Make the index anew if it is due after so many steps."""
        if not self.is_due(step):
            return
        if self._pool is None:
            self._snapshot = ring.held()
            self._index = _built(self._snapshot, self._kind)
            return
        if self._coming is not None:
            self._snapshot, made = self._coming
            self._index = made.result()
        self._start(ring.held())

    def search(self, anchors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return the places of the nearest documents in the snapshot, int64 [n, count], nearest first; -1 for none."""
        if self._index is None or not len(anchors):
            return np.full((len(anchors), count), -1, np.int64)
        places: NDArray[np.int64] = self._index.search(anchors, count)[1]
        return places

    def tensors(self) -> dict[str, Tensor]:
        """Return all it needs to go on elsewhere."""
        parts = {"now": self._snapshot, "coming": None if self._coming is None else self._coming[0]}
        return {
            f"{name}.{key}": torch.from_numpy(getattr(part, key))
            for name, part in parts.items()
            if part is not None
            for key in ("documents", "steps", "vectors")
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave."""
        found: dict[str, Snapshot] = {}
        for name in ("now", "coming"):
            if f"{name}.documents" in tensors:
                keys = ("documents", "steps", "vectors")
                found[name] = Snapshot(*(tensors[f"{name}.{key}"].numpy().copy() for key in keys))
        if "now" in found:
            self._snapshot, self._index = found["now"], _built(found["now"], self._kind)
        if "coming" in found:
            self._start(found["coming"])

    def _start(self, snapshot: Snapshot) -> None:
        if self._pool is None:
            raise ValueError("a flat index is not made in a thread")
        self._coming = snapshot, self._pool.submit(_built, snapshot, self._kind)


def _built(snapshot: Snapshot, kind: str) -> Any:
    dimension = snapshot.vectors.shape[1]
    if kind == "flat":
        return _Flat(snapshot.vectors)
    # The setting is the thread's own; with several the graph would depend on which comes first.
    faiss.omp_set_num_threads(1)
    if kind == "pq":
        return _quantised(snapshot.vectors)
    index = faiss.IndexHNSWFlat(dimension, _HNSW_NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    index.add(snapshot.vectors)
    return index


def _quantised(vectors: NDArray[np.float32]) -> Any:
    """A product quantiser (Jégou, Douze and Schmid, "Product Quantization for Nearest Neighbor Search", 2011).

    A code of at most 8 bits for every 4 dimensions, a sixteenth of the memory; fewer bits where there are few vectors
    to place the centroids by, and none of it where there are next to none.
    """
    dimension, bits = vectors.shape[1], min(8, int(np.log2(max(len(vectors) / _POINTS, 1))))
    if bits < 1:
        return _Flat(vectors)
    parts = max(part for part in range(1, max(dimension // _PART, 1) + 1) if dimension % part == 0)
    index = faiss.IndexPQ(dimension, parts, bits, faiss.METRIC_INNER_PRODUCT)
    # FAISS warns below 39; the vectors are all there is, and not a sample of more.
    index.pq.cp.min_points_per_centroid = 1
    index.train(vectors)
    index.add(vectors)
    return index


class _Flat:
    """What ``faiss.IndexFlatIP`` gives, in a third of the time for the small index of every step."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self._type = torch.bfloat16 if resolve_precision("auto") == "bfloat16" else torch.float32
        self._vectors = torch.from_numpy(vectors).to(self._type)

    def search(self, anchors: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        found = min(count, len(self._vectors))
        similarity = torch.from_numpy(anchors).to(self._type) @ self._vectors.T
        values, places = torch.topk(similarity.float(), found)
        padding = ((0, 0), (0, count - found))
        return np.pad(values.numpy(), padding), np.pad(places.numpy(), padding, constant_values=-1)
