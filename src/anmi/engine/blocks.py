"""Blocks of candidates through an engine, as the bytes of the files that they come from and go to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from anmi.candidates import Candidates, CandidateShards, Columns, ColumnShards, Layout
from anmi.engine.params import EngineParams
from anmi.engine.running import running


@dataclass(frozen=True)
class _OfBlocks:
    """Makes the bytes of blocks by a function, in whatever way that computes."""

    function: Callable[[Any], Candidates]

    @property
    def outside_python(self) -> bool:
        """Whether the function is marked so; see :func:`anmi.engine.threads.outside_python`."""
        return getattr(self.function, "outside_python", False)


@dataclass(frozen=True)
class _Encoded(_OfBlocks):
    """Makes the bytes of a block from an item."""

    def __call__(self, item: Any) -> bytes:
        return self.function(item).to_bytes()


@dataclass(frozen=True)
class _OnBlocks(_OfBlocks):
    """Applies a function to a block that is given by the bytes of its layers."""

    layout: Layout

    def __call__(self, layers: tuple[bytes, ...]) -> bytes:
        return self.function(self.layout(layers)).to_bytes()


@dataclass(frozen=True)
class _Adding(_OfBlocks):
    """Returns only what a function adds to a block."""

    layout: Layout

    def __call__(self, layers: tuple[bytes, ...]) -> bytes:
        block = self.layout(layers)
        return Columns.added(block, self.function(block)).to_bytes(block)


def make_blocks(
    engine: EngineParams,
    function: Callable[[Any], Candidates],
    items: Iterable[Any],
    *,
    description: str = "",
    total: int | None = None,
) -> CandidateShards:
    """Return shards that the workers of an engine make, one from each item, when they are read.

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
    return CandidateShards.of_parts(
        lambda: _counted(running(engine).ordered(_Encoded(function), items), description, total)
    )


def map_blocks(
    engine: EngineParams,
    function: Callable[[Candidates], Candidates],
    shards: CandidateShards,
    *,
    description: str = "",
    total: int | None = None,
) -> CandidateShards:
    """Return shards on which the workers of an engine apply a function as they are read.

    Parameters are those of :func:`make_blocks`, but for the shards in place of the items.
    """
    applied = _OnBlocks(function, shards.layout)
    return CandidateShards.of_parts(
        lambda: _counted(running(engine).ordered(applied, shards.layers()), description, total)
    )


def add_columns(
    engine: EngineParams,
    function: Callable[[Candidates], Candidates],
    shards: CandidateShards,
    *,
    description: str = "",
    total: int | None = None,
) -> ColumnShards:
    """Return the columns that a function adds to each block, made by the workers of an engine when they are read.

    Parameters are those of :func:`map_blocks`; the function returns the block that it is given with columns added.
    """
    adding = _Adding(function, shards.layout)
    return ColumnShards(lambda: _counted(running(engine).ordered(adding, shards.layers()), description, total))


def _counted(parts: Iterator[bytes], description: str, total: int | None) -> Iterator[bytes]:
    with tqdm(total=total, desc=description, unit="query", disable=not description, delay=2) as bar:
        for part in parts:
            bar.update(pq.read_metadata(pa.BufferReader(part)).num_rows)
            yield part
