"""Blocks of candidates one at a time, with the columns that later stages added to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anmi.candidates.block import PADDING, Candidates, stored_columns
from anmi.errors import AnmiError
from anmi.ragged import lists, padded_array, read_table, table_bytes

_OF_KEY: Final = b"anmi.of"
Source = bytes | Path
"""A part by its bytes, or by the file that holds them."""


@dataclass(frozen=True)
class Part:
    """What was written: the name of a file, its queries, and the hash of its bytes (that of :func:`hash_file`)."""

    name: str
    rows: int
    digest: str


def read(source: Source) -> bytes:
    """Return the bytes of a part.

    Examples
    --------
    >>> read(b"abc")
    b'abc'
    """
    return source if isinstance(source, bytes) else source.read_bytes()


def write(data: bytes, folder: Path, number: int) -> Part:
    """Write a part under its number."""
    name = f"part-{number:05d}.parquet"
    (folder / name).write_bytes(data)
    return Part(
        name, pq.read_metadata(pa.BufferReader(data)).num_rows, hashlib.blake2b(data, digest_size=16).hexdigest()
    )


def write_all(parts: Iterable[bytes], folder: Path) -> list[Part]:
    """Write parts as they come, in this process."""
    return [write(data, folder, number) for number, data in enumerate(parts)]


@dataclass(frozen=True)
class Columns:
    """Measurements that a stage adds to one block.

    Attributes
    ----------
    columns, positive_columns, query_columns
        As those of :class:`Candidates`.
    of
        Digest of the block's queries and candidates; empty where only some of the block was read.

    Examples
    --------
    >>> documents = np.array([[3, 1], [2, -1]], np.int32)
    >>> block = Candidates(np.array(["a", "b"]), documents[:, :1], documents, np.ones((2, 2), np.uint8))
    >>> judged = block.with_columns({"cross": np.array([[0.5, 1.0], [0.25, np.nan]])})
    >>> added = Columns.from_bytes(Columns.added(block, judged).to_bytes(block))
    >>> added.onto(block).columns["cross"].tolist()
    [[0.5, 1.0], [0.25, nan]]
    """

    columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    positive_columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    query_columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    of: str = ""

    @staticmethod
    def added(before: Candidates, after: Candidates) -> Columns:
        """Return what ``after`` has and ``before`` has not, or has otherwise; both of the same candidates."""

        def new(old: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
            return {name: values for name, values in now.items() if old.get(name) is not values}

        return Columns(
            new(before.columns, after.columns),
            new(before.positive_columns, after.positive_columns),
            new(before.query_columns, after.query_columns),
            digest_of(before),
        )

    def onto(self, block: Candidates) -> Candidates:
        """Return the block with these columns.

        Raises
        ------
        AnmiError
            They were made for other candidates.
        """
        if self.of and self.of != digest_of(block):
            found = next(iter([*self.columns, *self.positive_columns, *self.query_columns]), "a column")
            raise AnmiError(
                f'"{found}" was measured for other candidates than those it was to be joined with: '
                "run the stages of mining again, from the first one that changed"
            )
        return block.with_columns(
            {name: _placed(values, block.filled) for name, values in self.columns.items()},
            {name: _placed(values, block.positives != PADDING) for name, values in self.positive_columns.items()},
            self.query_columns,
        )

    def to_bytes(self, block: Candidates) -> bytes:
        """Return the columns as the bytes of a Parquet file, without the padding of their block."""
        filled, known = block.filled, block.positives != PADDING
        arrays = {f"c.{name}": lists(column, filled) for name, column in self.columns.items()}
        arrays |= {f"p.{name}": lists(column, known) for name, column in self.positive_columns.items()}
        arrays |= {f"q.{name}": pa.array(column) for name, column in self.query_columns.items()}
        return table_bytes(pa.table(arrays).replace_schema_metadata({_OF_KEY: self.of.encode()}))

    @staticmethod
    def from_table(table: pa.Table) -> Columns:
        """Rebuild the columns from a file of :meth:`to_bytes`."""
        names = table.column_names
        return Columns(
            {n[2:]: padded_array(table.column(n), np.nan) for n in names if n.startswith("c.")},
            {n[2:]: padded_array(table.column(n), np.nan, 1) for n in names if n.startswith("p.")},
            {n[2:]: table.column(n).to_numpy() for n in names if n.startswith("q.")},
            (table.schema.metadata or {}).get(_OF_KEY, b"").decode(),
        )

    @staticmethod
    def from_bytes(data: bytes) -> Columns:
        """Rebuild the columns from :meth:`to_bytes`."""
        return Columns.from_table(read_table(data))


def digest_of(block: Candidates) -> str:
    """Return 16 hexadecimal digits of which candidates, of which queries and positives, stand where in a block."""
    state = hashlib.blake2b("\x1f".join(block.query_ids.tolist()).encode(errors="surrogatepass"), digest_size=8)
    for documents in (block.positives, block.documents):
        filled = documents != PADDING
        state.update(np.ascontiguousarray(filled.sum(axis=1), np.int64).tobytes())
        state.update(np.ascontiguousarray(documents[filled], np.int32).tobytes())
    return state.hexdigest()


def _placed(values: NDArray[np.float32], held: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return stored values, which have no padding inside a row, where a block has its documents."""
    stored = np.arange(values.shape[1]) < held.sum(axis=1)[:, None]
    if np.array_equal(stored, held):
        return values
    placed = np.full(held.shape, np.nan, np.float32)
    placed[held] = values[stored]
    return placed


class ColumnShards:
    """The columns that a stage adds, one part a block; without parts where the stage had nothing to add.

    Parameters
    ----------
    parts
        Makes the parts as :meth:`Columns.to_bytes` writes them.
    files
        Where they are files; then each pass reads them again.
    names
        Measurements to be read; None for all.
    """

    def __init__(
        self,
        parts: Callable[[], Iterable[bytes]] | None = None,
        files: Sequence[Path] | None = None,
        names: Collection[str] | None = None,
    ) -> None:
        self._parts, self._files, self._names = parts, files, names

    @staticmethod
    def none() -> ColumnShards:
        """Return what a stage leaves that had nothing to add."""
        return ColumnShards(files=())

    def __bool__(self) -> bool:
        return bool(self._files) if self._parts is None else True

    def parts(self) -> Iterator[bytes]:
        """Yield the part of each block; where all measurements are wanted, what is stored is not decoded for it."""
        return map(read, self.sources())

    def sources(self) -> Iterator[Source]:
        """Yield the part of each block, or the file that holds it, which is not read for it."""
        if self._names is not None:
            yield from map(table_bytes, self._tables())
        else:
            yield from (self._files or ()) if self._parts is None else self._parts()

    def save(self, folder: Path) -> list[Part]:
        """Write the parts into a folder, one after the other."""
        return write_all(self.parts(), folder)

    def _tables(self) -> Iterator[pa.Table]:
        for source in (self._files or ()) if self._parts is None else self._parts():
            yield read_table(source, lambda names: stored_columns(names, self._names))

    def __iter__(self) -> Iterator[Columns]:
        return map(Columns.from_table, self._tables())

    def only(self, *names: str) -> ColumnShards:
        """Return shards without other measurements than these; of files, nothing else is read."""
        return ColumnShards(self._parts, self._files, names)


First = TypeVar("First")
Second = TypeVar("Second")
Layers = tuple[Source, ...]


def block_of(layers: Layers) -> Candidates:
    """Put a block together: that of retrieval, and the columns that stages added to it."""
    block = Candidates.from_bytes(read(layers[0]))
    for layer in layers[1:]:
        block = Columns.from_bytes(read(layer)).onto(block)
    return block


class CandidateShards:
    """Blocks of queries that are read, or made, one at a time.

    Holds either the files of an artifact (read again at each pass) or a function that makes the blocks, so memory
    is bounded by a shard whatever the number of queries.

    Examples
    --------
    >>> len(list(CandidateShards(lambda: iter([]))))
    0
    """

    def __init__(
        self,
        blocks: Callable[[], Iterator[Candidates]],
        narrow: Callable[[Sequence[str]], CandidateShards] | None = None,
        layers: Callable[[], Iterator[Layers]] | None = None,
        files: Sequence[Path] | None = None,
    ) -> None:
        self._blocks, self._narrow, self._layers, self.files = blocks, narrow, layers, files

    @staticmethod
    def of(blocks: Sequence[Candidates]) -> CandidateShards:
        """Wrap blocks that are in memory already."""
        return CandidateShards(lambda: iter(blocks))

    @staticmethod
    def read(files: Sequence[Path]) -> CandidateShards:
        """Read shards from Parquet files, in the order given."""

        def blocks(names: Sequence[str] | None = None) -> Iterator[Candidates]:
            for path in files:
                yield Candidates.from_table(read_table(path, lambda there: stored_columns(there, names)))

        def narrow(names: Sequence[str]) -> CandidateShards:
            return CandidateShards(lambda: blocks(names), files=files)

        return CandidateShards(blocks, narrow, lambda: ((path,) for path in files), files)

    @staticmethod
    def of_parts(parts: Callable[[], Iterator[bytes]]) -> CandidateShards:
        """Wrap a function that makes the blocks as :meth:`Candidates.to_bytes` writes them."""
        return CandidateShards(lambda: map(Candidates.from_bytes, parts()), layers=lambda: ((p,) for p in parts()))

    def save(self, folder: Path) -> list[Part]:
        """Write the blocks into a folder, one after the other."""
        return write_all(self.parts(), folder)

    def layers(self) -> Iterator[Layers]:
        """Yield what :func:`block_of` puts each block together from; what is stored is not read for it."""
        return self._layers() if self._layers is not None else ((block.to_bytes(),) for block in self)

    def parts(self) -> Iterator[bytes]:
        """Yield each block as :meth:`Candidates.to_bytes` writes it; what is stored so is not decoded for it."""
        for layers in self.layers():
            yield read(layers[0]) if len(layers) == 1 else block_of(layers).to_bytes()

    def __iter__(self) -> Iterator[Candidates]:
        return self._blocks()

    def joined(self, *added: ColumnShards) -> CandidateShards:
        """Return the blocks with the columns that stages added, by position.

        Raises
        ------
        AnmiError
            When read: the columns are of other candidates.
        """
        result = self
        for columns in added:
            result = result._with(columns) if columns else result
        return result

    def _with(self, added: ColumnShards) -> CandidateShards:
        def narrow(names: Sequence[str]) -> CandidateShards:
            return self.only(*names)._with(added.only(*names))

        return CandidateShards(
            lambda: (columns.onto(block) for block, columns in _side_by_side(self, added)),
            narrow,
            lambda: ((*layers, part) for layers, part in _side_by_side(self.layers(), added.sources())),
        )

    def map(self, function: Callable[[Candidates], Candidates]) -> CandidateShards:
        """Return shards on which ``function`` is applied as they are read."""
        return CandidateShards(lambda: (function(block) for block in self))

    def only(self, *names: str) -> CandidateShards:
        """Return shards without other measurements than these; of files, nothing else is read."""
        if self._narrow is not None:
            return self._narrow(names)
        return self.map(lambda block: block.only(names))

    def whole(self) -> Candidates:
        """Return all shards as one block; for small collections and tests."""
        return Candidates.concatenate(list(self))


def _side_by_side(first: Iterable[First], second: Iterable[Second]) -> Iterator[tuple[First, Second]]:
    nothing: Any = object()
    for one, other in zip_longest(first, second, fillvalue=nothing):
        if one is nothing or other is nothing:
            raise AnmiError(
                "columns and candidates that were to be joined are not of the same number of shards: "
                "run the stages of mining again, from the first one that changed"
            )
        yield one, other
