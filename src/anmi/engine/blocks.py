"""Blocks of candidates through an engine, as the bytes of the files that they come from and go to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from anmi.candidates import Candidates, CandidateShards
from anmi.engine.params import EngineParams
from anmi.engine.running import running


@dataclass(frozen=True)
class _Encoded:
    """Makes the bytes of a block from an item."""

    function: Callable[[Any], Candidates]

    def __call__(self, item: Any) -> bytes:
        return self.function(item).to_bytes()


@dataclass(frozen=True)
class _OnParts:
    """Applies a function to the bytes of a block."""

    function: Callable[[Candidates], Candidates]

    def __call__(self, part: bytes) -> bytes:
        return self.function(Candidates.from_bytes(part)).to_bytes()


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
    return CandidateShards.of_parts(
        lambda: _counted(running(engine).ordered(_OnParts(function), shards.parts()), description, total)
    )


def _counted(parts: Iterator[bytes], description: str, total: int | None) -> Iterator[bytes]:
    with tqdm(total=total, desc=description, unit="query", disable=not description, delay=2) as bar:
        for part in parts:
            bar.update(pq.read_metadata(pa.BufferReader(part)).num_rows)
            yield part
