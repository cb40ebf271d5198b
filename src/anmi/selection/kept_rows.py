"""Rows that an earlier mining chose, taken over into a new version of the collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.candidates.parts import File, Part
from anmi.ragged import table_bytes


def places_of(before: Sequence[str], now: Sequence[str], gone: Sequence[str] = ()) -> NDArray[np.int32]:
    """Return where each earlier document stands now, int32 [N]; -1 where it is not there any more.

    Parameters
    ----------
    before, now
        Document ids in corpus order.
    gone
        Ids of documents that are there under the same name and say something else.

    Examples
    --------
    >>> places_of(["a", "b", "c"], ["c", "new", "a"]).tolist()
    [2, -1, 0]
    """
    place = {document: row for row, document in enumerate(now)}
    for document in gone:
        place.pop(document, None)
    return np.fromiter((place.get(document, PADDING) for document in before), np.int32, len(before))


@dataclass(frozen=True)
class KeptRows:
    """Takes over the rows of a block but for some queries, with the documents' new places.

    A candidate that is not there any more is left out.

    Attributes
    ----------
    without
        Queries that are not taken over, sorted.
    places
        See :func:`places_of`.
    """

    without: NDArray[np.str_]
    places: NDArray[np.int32]

    @staticmethod
    def of(without: Sequence[str], places: NDArray[np.int32]) -> KeptRows:
        """Take over all but these queries."""
        return KeptRows(np.array(sorted(without), np.str_), places)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the rows that are taken over."""
        if len(self.without):
            block = block.take(~np.isin(block.query_ids, self.without))
        documents, positives = (_moved(self.places, rows) for rows in (block.documents, block.positives))
        return replace(block, documents=documents, positives=positives)

    def in_bytes(self, part: bytes) -> bytes:
        """Return the same of :meth:`anmi.candidates.Candidates.to_bytes`, unpacking no measurement where none goes."""
        queries = pq.read_table(pa.BufferReader(part), columns=["query_id"]).column(0).to_numpy()
        kept = ~np.isin(queries, self.without)
        if kept.all() and np.array_equal(self.places, np.arange(len(self.places))):
            return part
        table = pq.read_table(pa.BufferReader(part)).filter(pa.array(kept)).combine_chunks()
        for name in ("documents", "positives"):
            rows = table.column(name)
            moved = self.places[rows.combine_chunks().flatten().to_numpy()]
            if (moved == PADDING).any():
                return self(Candidates.from_bytes(part)).to_bytes()
            ends = np.cumsum(rows.combine_chunks().value_lengths().to_numpy(zero_copy_only=False))
            offsets = np.concatenate([[0], ends]).astype(np.int32)
            column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(moved))
            table = table.set_column(table.column_names.index(name), name, column)
        return table_bytes(table)


def losers(shards: CandidateShards, places: NDArray[np.int32]) -> Iterator[str]:
    """Yield the queries for which a document was chosen that is not there any more.

    Parameters
    ----------
    shards
        After selection.
    places
        See :func:`places_of`.
    """
    for block in shards.only():
        chosen = block.negatives | block.of_kind("promoted", "uncertain")
        lost = (chosen & (_moved(places, block.documents) == PADDING)).any(axis=1)
        yield from block.query_ids[lost].tolist()


def chained(first: CandidateShards, second: CandidateShards) -> CandidateShards:
    """Return the blocks of both, one after the other."""

    def blocks() -> Iterator[Candidates]:
        yield from first
        yield from second

    def layers() -> Iterator[tuple[bytes, ...]]:
        for shards in (first, second):
            yield from ((part,) for part in shards.parts())

    return CandidateShards(blocks, layers=layers, saver=_Chained(first, second))


@dataclass(frozen=True)
class _Chained:
    """Lets the workers who make the shards of both write them."""

    first: CandidateShards
    second: CandidateShards

    @property
    def away(self) -> bool:
        return self.first.away or self.second.away

    def __call__(self, folder: File, first: int = 0) -> list[Part]:
        written = self.first.save(folder, first)
        return [*written, *self.second.save(folder, first + len(written))]


def _moved(places: NDArray[np.int32], documents: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.where(documents == PADDING, np.int32(PADDING), places[documents])
