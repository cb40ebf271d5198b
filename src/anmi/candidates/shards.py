"""Shards yield blocks of candidates one at a time, with the columns that later stages added to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anmi.candidates.block import PADDING, PREFIXES, Candidates, each_kind, from_lists, to_lists
from anmi.errors import AnmiError
from anmi.ragged import read_table, table_bytes

_OF_KEY: Final = b"anmi.of"
Layer: TypeAlias = bytes | Path | pa.Table | Candidates
"""Candidates or columns of one block: as the bytes of a file, the file, what was read of it, or the block itself."""
Layers: TypeAlias = tuple[Layer, ...]


def as_bytes(layer: Layer) -> bytes:
    """Return a layer as the bytes of a Parquet file."""
    if isinstance(layer, bytes):
        return layer
    if isinstance(layer, Path):
        return layer.read_bytes()
    return layer.to_bytes() if isinstance(layer, Candidates) else table_bytes(layer)


def _table(layer: bytes | Path | pa.Table) -> pa.Table:
    return layer if isinstance(layer, pa.Table) else read_table(layer)


def _narrowed(layer: Layer, names: Sequence[str]) -> pa.Table | Candidates:
    """Return a layer without other measurements than these; nothing else is read from a file."""
    if isinstance(layer, Candidates):
        return layer.only(names)

    def chosen(stored: list[str]) -> list[str]:
        return [name for name in stored if name[:2] not in PREFIXES or name[2:] in names]

    return layer.select(chosen(layer.column_names)) if isinstance(layer, pa.Table) else read_table(layer, chosen)


def block_of(layers: Layers) -> Candidates:
    """Put a block together from what retrieval found and the columns that stages added to it."""
    first, *added = layers
    block = first if isinstance(first, Candidates) else Candidates.from_table(_table(first))
    for layer in added:
        block = Columns.from_table(_table(layer)).onto(block)
    return block


@dataclass(frozen=True)
class Part:
    """A file that was written: its name, its queries, and the hash of its bytes (that of :func:`hash_file`)."""

    name: str
    rows: int
    digest: str


def _write(parts: Iterable[bytes], folder: Path) -> list[Part]:
    """Write parts into a folder under their numbers."""
    written = []
    for number, data in enumerate(parts):
        name, rows = f"part-{number:05d}.parquet", pq.read_metadata(pa.BufferReader(data)).num_rows
        (folder / name).write_bytes(data)
        written.append(Part(name, rows, hashlib.blake2b(data, digest_size=16).hexdigest()))
    return written


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
    >>> added = Columns.from_table(read_table(Columns.added(block, judged).to_bytes(block)))
    >>> added.onto(block).columns["cross"].tolist()
    [[0.5, 1.0], [0.25, nan]]
    """

    columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    positive_columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    query_columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    of: str = ""

    @staticmethod
    def added(before: Candidates, after: Candidates) -> Columns:
        """Return the columns of ``after`` that ``before``, of the same candidates, lacks or has with other values."""

        def new(now: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
            return {name: values for name, values in now.items() if old.get(name) is not values}

        return Columns(**each_kind(new, after, before), of=digest_of(before))

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
        return table_bytes(pa.table(to_lists(self, block)).replace_schema_metadata({_OF_KEY: self.of.encode()}))

    @staticmethod
    def from_table(table: pa.Table) -> Columns:
        """Rebuild the columns from a file of :meth:`to_bytes`."""
        return Columns(**from_lists(table), of=(table.schema.metadata or {}).get(_OF_KEY, b"").decode())


def digest_of(block: Candidates) -> str:
    """Return a hash, 16 hexadecimal digits, of the queries, positives and candidates of a block and of their places."""
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
    """

    def __init__(self, parts: Callable[[], Iterable[Layer]] | None = None, files: Sequence[Path] = ()) -> None:
        self.layers: Callable[[], Iterable[Layer]] = parts or (lambda: files)
        self._some = bool(parts or files)

    @staticmethod
    def none() -> ColumnShards:
        """Return the columns of a stage that had nothing to add."""
        return ColumnShards()

    def __bool__(self) -> bool:
        return self._some

    def parts(self) -> Iterator[bytes]:
        """Yield the part of each block."""
        return map(as_bytes, self.layers())

    def save(self, folder: Path) -> list[Part]:
        """Write the parts into a folder, one after the other."""
        return _write(self.parts(), folder)


class CandidateShards:
    """Blocks of queries that are read, or made, one at a time.

    Holds a function that makes the blocks, or the layers of each, so memory is bounded by a shard whatever the number
    of queries; files are read again at each pass.

    Examples
    --------
    >>> len(list(CandidateShards(lambda: iter([]))))
    0
    """

    def __init__(self, blocks: Callable[[], Iterable[Layer | Layers]], files: Sequence[Path] | None = None) -> None:
        self._blocks, self.files = blocks, files

    @staticmethod
    def of(blocks: Sequence[Candidates]) -> CandidateShards:
        """Wrap blocks that are in memory already."""
        return CandidateShards(lambda: blocks)

    @staticmethod
    def read(files: Sequence[Path]) -> CandidateShards:
        """Read shards from Parquet files, in the order given."""
        return CandidateShards(lambda: files, files)

    def save(self, folder: Path) -> list[Part]:
        """Write the blocks into a folder, one after the other."""
        return _write(self.parts(), folder)

    def layers(self) -> Iterator[Layers]:
        """Yield what :func:`block_of` puts each block together from; files are not read for it."""
        return (found if isinstance(found, tuple) else (found,) for found in self._blocks())

    def parts(self) -> Iterator[bytes]:
        """Yield each block as :meth:`Candidates.to_bytes` writes it; what is stored so is not decoded for it."""
        for layers in self.layers():
            yield as_bytes(layers[0]) if len(layers) == 1 else block_of(layers).to_bytes()

    def __iter__(self) -> Iterator[Candidates]:
        return map(block_of, self.layers())

    def joined(self, *added: ColumnShards) -> CandidateShards:
        """Return the blocks with the columns that stages added, by position.

        Raises
        ------
        AnmiError
            When read: the columns are of other candidates.
        """
        some = [columns for columns in added if columns]
        return CandidateShards(lambda: _side_by_side(self, some)) if some else self

    def map(self, function: Callable[[Candidates], Candidates]) -> CandidateShards:
        """Return shards on which ``function`` is applied as they are read."""
        return CandidateShards(lambda: map(function, self))

    def only(self, *names: str) -> CandidateShards:
        """Return shards without other measurements than these; of files, nothing else is read."""
        return CandidateShards(
            lambda: (tuple(_narrowed(layer, names) for layer in layers) for layers in self.layers()), self.files
        )

    def whole(self) -> Candidates:
        """Return all shards as one block; for small collections and tests."""
        return Candidates.concatenate(list(self))


def _side_by_side(blocks: CandidateShards, added: Sequence[ColumnShards]) -> Iterator[Layers]:
    for layers, *parts in zip_longest(blocks.layers(), *(columns.layers() for columns in added)):
        if layers is None or any(part is None for part in parts):
            raise AnmiError(
                "columns and candidates that were to be joined are not of the same number of shards: "
                "run the stages of mining again, from the first one that changed"
            )
        yield (*layers, *parts)
