"""Blocks of candidates through an engine, whose workers read and write the files that they come from and go to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from anmi.buckets import RemoteFile
from anmi.candidates import Candidates, CandidateShards, Columns, ColumnShards, Layout
from anmi.candidates.parts import File, Part, Source, read, write, write_all
from anmi.engine.params import EngineParams
from anmi.engine.running import running

_Written = TypeVar("_Written", bytes, Part)


@dataclass(frozen=True)
class _OfBlocks(ABC):
    """Makes the bytes of blocks by a function, in whatever way that computes."""

    function: Callable[[Any], Candidates]

    @property
    def outside_python(self) -> bool:
        """Whether the function is marked so; see :func:`anmi.engine.threads.outside_python`."""
        return getattr(self.function, "outside_python", False)

    @abstractmethod
    def __call__(self, item: Any) -> bytes:
        """Return the bytes of the part that is made of an item."""


@dataclass(frozen=True)
class _Encoded(_OfBlocks):
    """Makes the bytes of a block from an item."""

    def __call__(self, item: Any) -> bytes:
        return self.function(item).to_bytes()


@dataclass(frozen=True)
class _OnBlocks(_OfBlocks):
    """Applies a function to a block that is given by its layers."""

    layout: Layout

    def __call__(self, layers: tuple[Source, ...]) -> bytes:
        return self.function(self.layout(layers)).to_bytes()


@dataclass(frozen=True)
class _Adding(_OfBlocks):
    """Returns only what a function adds to a block."""

    layout: Layout

    def __call__(self, layers: tuple[Source, ...]) -> bytes:
        block = self.layout(layers)
        return Columns.added(block, self.function(block)).to_bytes(block)


@dataclass(frozen=True)
class _Writing:
    """Writes the part that is made of an item, under its number, and returns what it holds."""

    made: _OfBlocks
    folder: File

    @property
    def outside_python(self) -> bool:
        """As what makes the part."""
        return self.made.outside_python

    def __call__(self, numbered: tuple[int, Any]) -> Part:
        number, item = numbered
        return write(self.made(item), self.folder, number)


@dataclass(frozen=True)
class _Made:
    """Parts that the workers of an engine make, one of each item, and write where they reach the folder.

    Attributes
    ----------
    made
        Makes the bytes of a part from an item.
    items
        Iterated anew at each pass.
    description, total
        Name of the progress bar and its queries.
    """

    engine: EngineParams
    made: _OfBlocks
    items: Callable[[], Iterable[Any]]
    description: str
    total: int | None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: it only says how parts are made, and what they are made with may be an open store."""
        return self

    @property
    def away(self) -> bool:
        """Whether workers are on other machines, too."""
        return not running(self.engine).on_this_machine

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the parts, in the order of the items, through this process."""
        made = running(self.engine).ordered(self.made, self._sent())
        return self._counted(made, lambda part: pq.read_metadata(pa.BufferReader(part)).num_rows)

    def __call__(self, folder: File, first: int = 0) -> list[Part]:
        """Write the parts into a folder: each worker its own, or this process where they do not reach the folder."""
        if not self._reach(folder):
            return write_all(self.parts(), folder, first)
        writing = _Writing(self.made, folder)
        written = running(self.engine).ordered(writing, enumerate(self._sent(), start=first))
        return list(self._counted(written, lambda part: part.rows))

    def _reach(self, place: Source) -> bool:
        if not self.away or isinstance(place, bytes):
            return True
        return isinstance(place, RemoteFile) or self.engine.ray.shared_disk

    def _sent(self) -> Iterator[Any]:
        """Yield the items; where they lie in files that the workers do not reach, with what these hold."""
        if not isinstance(self.made, (_OnBlocks, _Adding)):
            yield from self.items()
            return
        for layers in self.items():
            yield tuple(layer if self._reach(layer) else read(layer) for layer in layers)

    def _counted(self, parts: Iterator[_Written], rows: Callable[[_Written], int]) -> Iterator[_Written]:
        hidden = not self.description
        with tqdm(total=self.total, desc=self.description, unit="query", disable=hidden, delay=2) as bar:
            for part in parts:
                bar.update(rows(part))
                yield part


def make_blocks(
    engine: EngineParams,
    function: Callable[[Any], Candidates],
    items: Iterable[Any],
    *,
    description: str = "",
    total: int | None = None,
) -> CandidateShards:
    """Return shards that the workers of an engine make, one from each item, when they are read or saved.

    Parameters
    ----------
    engine
        Where.
    function
        See :meth:`anmi.engine.Engine.ordered`.
    items
        Plain data; iterated anew at each pass.
    description
        Name of the progress bar; none is drawn without.
    total
        Queries, for the bar.
    """
    made = _Made(engine, _Encoded(function), lambda: items, description, total)
    return CandidateShards.of_parts(made.parts, made)


def map_blocks(
    engine: EngineParams,
    function: Callable[[Candidates], Candidates],
    shards: CandidateShards,
    *,
    description: str = "",
    total: int | None = None,
) -> CandidateShards:
    """Return shards on which the workers of an engine apply a function as they are read or saved.

    Parameters are those of :func:`make_blocks`, but for the shards in place of the items. Workers read stored shards
    themselves, where they reach them.
    """
    made = _Made(engine, _OnBlocks(function, shards.layout), shards.layers, description, total)
    return CandidateShards.of_parts(made.parts, made)


def add_columns(
    engine: EngineParams,
    function: Callable[[Candidates], Candidates],
    shards: CandidateShards,
    *,
    description: str = "",
    total: int | None = None,
) -> ColumnShards:
    """Return the columns that a function adds to each block, made by the workers of an engine when read or saved.

    Parameters are those of :func:`map_blocks`; the function returns the block that it is given with columns added.
    """
    made = _Made(engine, _Adding(function, shards.layout), shards.layers, description, total)
    return ColumnShards(made.parts, saver=made)
