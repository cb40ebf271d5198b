"""The nearest documents among those that training encoded last, and what they show of a few queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from anmi.candidates import PADDING
from anmi.corpus.knowledge import Knowledge, KnowledgeGraph
from anmi.corpus.splits import choose
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.retrieval.kinds import resolve_precision
from anmi.retrieval.related import RelatedDocuments
from anmi.training.batch import Row

# Kinds of variants that the source "graph" draws; all others are edits.
GRAPH_KINDS: Final = ("swap", "counterpart", "neighbour")


@dataclass(frozen=True)
class Stock:
    """D documents of a corpus and V variants of them, numbered on from D.

    Attributes
    ----------
    ids, texts
        Of documents and then variants, D + V.
    origin
        The document that each is, or is a variant of, int32 [D + V].
    about
        Number of the entity that a document is about, int32 [D]; -1 where it is about none.
    uris
        Names of the entities.
    entailing
        For a document, which documents state all of its facts, bool [D, D]; itself included where it states any.
    same
        For a document, near-duplicates and parts of the same document, bool [D, D].
    swaps, edits
        Numbers of the variants of a document for the sources graph and edit, int32 [D, S], padded with -1.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    origin: NDArray[np.int32]
    about: NDArray[np.int32]
    uris: tuple[str, ...]
    entailing: sparse.csr_array
    same: sparse.csr_array
    swaps: NDArray[np.int32]
    edits: NDArray[np.int32]
    number: dict[str, int] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Number of the documents, D."""
        return len(self.about)

    @classmethod
    def from_tables(
        cls, corpus: pd.DataFrame, knowledge: Knowledge, variants: pd.DataFrame, related_documents: pd.DataFrame
    ) -> Stock:
        """Read what ingestion and the making of variants left.

        Raises
        ------
        AnmiError
            No document states a fact.
        """
        ids = corpus.document_id.tolist()
        same = _same(related_documents, ids)
        return cls.build(ids, document_texts(corpus), knowledge.of(ids), variants, same)

    @classmethod
    def build(
        cls,
        ids: Sequence[str],
        texts: Sequence[str],
        graph: KnowledgeGraph,
        variants: pd.DataFrame,
        same: sparse.csr_array,
    ) -> Stock:
        """Number what can be drawn.

        Variants are ``variant_id, document_id, kind, text``; counterparts and neighbours are documents, and so are
        their ids. ``same`` are for each of the D documents those that must not be its negatives for their text alone,
        bool [D, D].

        Raises
        ------
        AnmiError
            No document states a fact.
        """
        if not graph.stated.nnz:
            raise AnmiError(
                "Negatives from mixed sources need to know what documents state, and this collection has no facts; "
                "read it with kg:DIR, or choose a recipe without `sources: mixed`."
            )
        number = {identifier: place for place, identifier in enumerate(ids)}
        place = variants.document_id.map(number)
        variants = variants[place.notna()].assign(place=place[place.notna()].astype(np.int32))
        made = ~variants.variant_id.isin(number)
        fresh = variants[made]
        numbers = np.empty(len(variants), np.int32)
        numbers[made.to_numpy()] = len(ids) + np.arange(len(fresh))
        numbers[~made.to_numpy()] = variants.variant_id[~made].map(number)
        everything = (*ids, *fresh.variant_id)
        own = np.arange(len(ids), dtype=np.int32)
        graph_kind = variants.kind.isin(GRAPH_KINDS).to_numpy()
        parts = [
            _by_row(variants.place.to_numpy()[kind], numbers[kind], len(ids)) for kind in (graph_kind, ~graph_kind)
        ]
        return cls(
            ids=everything,
            texts=(*texts, *fresh.text),
            origin=np.concatenate([own, fresh.place.to_numpy(np.int32)]),
            about=graph.about,
            uris=graph.uris,
            entailing=graph.entailing(own[:, None]),
            same=same,
            swaps=parts[0],
            edits=parts[1],
            number={identifier: place for place, identifier in enumerate(everything)},
        )


def _same(related_documents: pd.DataFrame, ids: list[str]) -> sparse.csr_array:
    """Which documents are copies, near-duplicates or parts of the same document as each, bool [D, D]."""
    own = np.arange(len(ids), dtype=np.int32)[:, None]
    barred = RelatedDocuments.from_table(related_documents, ids).barred(own)
    row, place = np.nonzero(barred != PADDING)
    pairs = sparse.csr_array((np.ones(len(row), np.int32), (row, barred[row, place])), (len(ids), len(ids)))
    return sparse.csr_array(pairs > 0)


def _by_row(rows: NDArray[np.int32], values: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    result = np.full((count, int(place.max(initial=-1)) + 1), PADDING, np.int32)
    result[rows, place] = values
    return result


# As many neighbours of a query as the report of DNH shows, of as many queries as people look at.
DEPTH: Final = 5
MOST_QUERIES: Final = 20
COLUMNS: Final = ("step", "query_id", "rank", "document_id", "uri", "own_uri", "usable")


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


@dataclass(frozen=True)
class Snapshot:
    """Documents, the steps in which they were encoded, and their embeddings, float32 [n, d]."""

    documents: NDArray[np.int64]
    steps: NDArray[np.int64]
    vectors: NDArray[np.float32]


class LatentIndex:
    """Searches a snapshot of a :class:`RingBuffer`, exactly, that is made anew every ``refresh`` steps."""

    def __init__(self, refresh: int) -> None:
        self._refresh = refresh
        self.snapshot: Snapshot | None = None
        self._type = torch.bfloat16 if resolve_precision("auto") == "bfloat16" else torch.float32
        self._vectors = torch.zeros(0, 0)

    def is_due(self, step: int) -> bool:
        """Return whether the index is made anew after so many steps."""
        return step % self._refresh == 0

    def take(self, snapshot: Snapshot) -> None:
        """Search this one from now on."""
        self.snapshot = snapshot
        self._vectors = torch.from_numpy(snapshot.vectors).to(self._type)

    def search(self, anchors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return the places of the nearest documents in the snapshot, int64 [n, count], nearest first; -1 for none."""
        if self.snapshot is None or not len(anchors):
            return np.full((len(anchors), count), -1, np.int64)
        found = min(count, len(self._vectors))
        similarity = torch.from_numpy(anchors).to(self._type) @ self._vectors.T
        places = torch.topk(similarity.float(), found)[1].numpy()
        return np.pad(places, ((0, 0), (0, count - found)), constant_values=-1)

    def tensors(self) -> dict[str, Tensor]:
        """Return all it needs to go on elsewhere."""
        if self.snapshot is None:
            return {}
        return {key: torch.from_numpy(getattr(self.snapshot, key)) for key in ("documents", "steps", "vectors")}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave."""
        if tensors:
            self.take(Snapshot(*(tensors[key].numpy().copy() for key in ("documents", "steps", "vectors"))))


class WatchedQueries:
    """Notes the nearest documents of a few queries, with the entities they are about, each time the index is made.

    Parameters
    ----------
    rows
        All training rows; at most 20 of different queries are watched, chosen by a hash of their ids.
    stock
        Names documents and entities.
    seed
        Of the training.

    Attributes
    ----------
    rows
        Numbers of the rows that are watched, int64 [W].
    """

    def __init__(self, rows: Iterable[Row], stock: Stock, seed: int) -> None:
        first: dict[str, int] = {}
        for number, row in enumerate(rows):
            first.setdefault(row.query_id, number)
        names = sorted(first)
        chosen = [name for name, kept in zip(names, choose(names, MOST_QUERIES, seed), strict=True) if kept]
        self.rows = np.array([first[name] for name in chosen], np.int64)
        self._names, self._stock = chosen, stock
        self._noted: list[list[Any]] = []

    def note(
        self, step: int, watched: NDArray[np.int64], own: NDArray[np.int64], documents: NDArray[np.int64],
        usable: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Write down the neighbours of some of the watched queries.

        Parameters
        ----------
        step
            Steps made so far.
        watched
            Their places among :attr:`rows`, int64 [n].
        own
            Numbers of the entities that their positives are about, int64 [n]; -1 for none.
        documents, usable
            Nearest first, int64 [n, 5] padded with -1; and whether each may be a negative, bool [n, 5].
        """
        for line, place in enumerate(watched.tolist()):
            for rank in np.flatnonzero(documents[line] >= 0).tolist():
                document = int(documents[line, rank])
                entities = (int(self._stock.about[document]), int(own[line]))
                uris = [self._stock.uris[entity] if entity >= 0 else "" for entity in entities]
                name = self._stock.ids[document]
                self._noted.append([step, self._names[place], rank + 1, name, *uris, bool(usable[line, rank])])

    def table(self) -> pd.DataFrame:
        """Return what was noted, in that order; see :func:`neighbour_table`."""
        return neighbour_table(self._noted)

    def state(self) -> list[list[Any]]:
        """Return what was noted, as plain JSON values."""
        return self._noted

    def load(self, values: list[list[Any]]) -> None:
        """Go on from what :meth:`state` gave."""
        self._noted = [list(line) for line in values]


def neighbour_table(noted: Iterable[Sequence[Any]] = ()) -> pd.DataFrame:
    """Return ``step, query_id, rank, document_id, uri, own_uri, usable`` of lines in this order."""
    types: dict[str, Any] = {"step": "int64", "rank": "int64", "usable": bool}
    types |= dict.fromkeys(("query_id", "document_id", "uri", "own_uri"), "str")
    return pd.DataFrame(list(noted), columns=list(COLUMNS)).astype(types)
