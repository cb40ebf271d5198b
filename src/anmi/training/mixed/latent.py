"""What negatives of mixed sources are drawn from: documents, their variants, and those that were encoded last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.retrieval.kinds import resolve_precision
from anmi.retrieval.related import RelatedDocuments

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
        # Copies, near-duplicates and parts of the same document.
        barred = RelatedDocuments.from_table(related_documents, ids).barred(
            np.arange(len(ids), dtype=np.int32)[:, None]
        )
        row, place = np.nonzero(barred != PADDING)
        pairs = sparse.csr_array((np.ones(len(row), np.int32), (row, barred[row, place])), (len(ids), len(ids)))
        return cls.build(ids, document_texts(corpus), knowledge.of(ids), variants, sparse.csr_array(pairs > 0))

    @classmethod
    def build(
        cls, ids: Sequence[str], texts: Sequence[str], graph: KnowledgeGraph, variants: pd.DataFrame,
        same: sparse.csr_array,
    ) -> Stock:  # fmt: skip
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
        graph_kind, rows = variants.kind.isin(GRAPH_KINDS).to_numpy(), variants.place.to_numpy()
        swaps, edits = (_by_row(rows[kind], numbers[kind], len(ids)) for kind in (graph_kind, ~graph_kind))
        return cls(
            everything, (*texts, *fresh.text), np.concatenate([own, fresh.place.to_numpy(np.int32)]), graph.about,
            graph.uris, graph.entailing(own[:, None]), same, swaps, edits,
            {identifier: number for number, identifier in enumerate(everything)},
        )  # fmt: skip


def _by_row(rows: NDArray[np.int32], values: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    result = np.full((count, int(place.max(initial=-1)) + 1), PADDING, np.int32)
    result[rows, place] = values
    return result


class LatentIndex:
    """The embeddings of the documents that were encoded last, each once, and a copy of them that is searched exactly.

    A document that is encoded again takes its place anew; where all places are taken, the oldest document goes. The
    copy is made anew every ``refresh`` steps.

    Parameters
    ----------
    documents
        Number of documents there are.
    capacity
        Most documents that are held.
    dimension
        Of the embeddings.
    refresh
        Steps between two copies.

    Attributes
    ----------
    documents, steps
        Of the copy: its documents, and the steps in which they were encoded, int64 [n].

    Examples
    --------
    >>> index = LatentIndex(documents=9, capacity=2, dimension=1, refresh=1)
    >>> for step, document in enumerate([4, 7, 8]):
    ...     index.add(np.array([document]), np.array([[step]], np.float32), step)
    >>> index.take()
    >>> sorted(index.documents.tolist())
    [7, 8]
    """

    def __init__(self, documents: int, capacity: int, dimension: int, refresh: int) -> None:
        capacity = min(capacity, documents)
        self._refresh = refresh
        self._ring = (
            np.full(capacity, -1, np.int64),
            np.zeros(capacity, np.int64),
            np.zeros((capacity, dimension), "f4"),
        )
        self._slot = np.full(documents, -1, np.int64)
        self._next = 0
        self._type = torch.bfloat16 if resolve_precision("auto") == "bfloat16" else torch.float32
        self._take(*(part[:0] for part in self._ring))

    def add(self, documents: NDArray[np.int64], vectors: NDArray[np.float32], step: int) -> None:
        """Take in the embeddings, float32 [n, d], of n different documents as they were in a step."""
        held, steps, all_vectors = self._ring
        capacity = len(held)
        documents, vectors = documents[:capacity], vectors[:capacity]
        slots = self._slot[documents]
        fresh = slots < 0
        # Those of this very step must not be what goes.
        busy = np.zeros(capacity, bool)
        busy[slots[~fresh]] = True
        order = (self._next + np.arange(capacity)) % capacity
        free = order[~busy[order]][: int(fresh.sum())]
        slots[fresh] = free
        gone = held[free]
        self._slot[gone[gone >= 0]] = -1
        self._slot[documents] = slots
        held[slots], steps[slots], all_vectors[slots] = documents, step, vectors
        if len(free):
            self._next = int((free[-1] + 1) % capacity)

    def is_due(self, step: int) -> bool:
        """Return whether the copy is made anew after so many steps."""
        return step % self._refresh == 0

    def take(self) -> None:
        """Copy what is held, in the order of the places, to search it from now on."""
        there = self._ring[0] >= 0
        self._take(*(part[there] for part in self._ring))

    def _take(self, documents: NDArray[Any], steps: NDArray[Any], vectors: NDArray[Any]) -> None:
        self.documents, self.steps, self._copied = documents, steps, vectors
        self._vectors = torch.from_numpy(vectors).to(self._type)

    def search(self, anchors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return the places of the nearest documents in the copy, int64 [n, count], nearest first; -1 for none."""
        found = min(count, len(self._vectors))
        if not found or not len(anchors):
            return np.full((len(anchors), count), -1, np.int64)
        similarity = torch.from_numpy(anchors).to(self._type) @ self._vectors.T
        places = torch.topk(similarity.float(), found)[1].numpy()
        return np.pad(places, ((0, 0), (0, count - found)), constant_values=-1)

    def tensors(self) -> dict[str, Tensor]:
        """Return all it needs to go on elsewhere."""
        parts = (*self._ring, self.documents, self.steps, self._copied)
        return {f"index.{i}": torch.from_numpy(part) for i, part in enumerate(parts)} | {
            "next": torch.tensor(self._next)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave."""
        held, steps, vectors, *copied = (tensors[f"index.{i}"].numpy().copy() for i in range(6))
        self._ring, self._next = (held, steps, vectors), int(tensors["next"])
        self._take(*copied)
        self._slot[:] = -1
        there = np.flatnonzero(held >= 0)
        self._slot[held[there]] = there


def neighbour_table(noted: Iterable[Sequence[Any]] = ()) -> pd.DataFrame:
    """Return ``step, query_id, rank, document_id, uri, own_uri, usable`` of lines in this order."""
    types = {"step": "int64", "query_id": "str", "rank": "int64", "document_id": "str", "uri": "str", "own_uri": "str"}
    return pd.DataFrame(list(noted), columns=[*types, "usable"]).astype(types | {"usable": "bool"})
