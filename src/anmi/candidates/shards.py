"""Blocks of candidates one at a time, with the columns that later stages added to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

import pyarrow.parquet as pq

from anmi.candidates.block import Candidates, wanted
from anmi.candidates.columns import Columns, ColumnShards
from anmi.candidates.parts import File, Part, Source, read, write_all
from anmi.errors import AnmiError

First = TypeVar("First")
Second = TypeVar("Second")
Layers = tuple[Source, ...]


@dataclass(frozen=True)
class Layout:
    """How a block is put together from its layers: the block of retrieval, then the columns of stages.

    Attributes
    ----------
    expanded
        Number of layers behind which the block is turned to one row per (query, positive); None for never.
    """

    expanded: int | None = None

    def __call__(self, layers: Layers) -> Candidates:
        """Return the block."""
        block = Candidates.from_bytes(read(layers[0]))
        for number, layer in enumerate(layers[1:], start=1):
            if number == self.expanded:
                block = block.by_positive()
            block = Columns.from_bytes(read(layer)).onto(block)
        return block.by_positive() if self.expanded == len(layers) else block


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
        files: Sequence[File] | None = None,
        layout: Layout = Layout(),
        depth: int = 1,
    ) -> None:
        self._blocks, self.files = blocks, files
        self._narrow = narrow
        self._layers, self.layout, self._depth = layers, layout, depth

    @staticmethod
    def of(blocks: Sequence[Candidates]) -> CandidateShards:
        """Wrap blocks that are in memory already."""
        return CandidateShards(lambda: iter(blocks))

    @staticmethod
    def read(files: Sequence[File]) -> CandidateShards:
        """Read shards from Parquet files, in the order given."""

        def blocks(names: Sequence[str] | None = None) -> Iterator[Candidates]:
            for path in files:
                file = pq.ParquetFile(path)
                yield Candidates.from_table(file.read(columns=wanted(file.schema_arrow.names, names)))

        def narrow(names: Sequence[str]) -> CandidateShards:
            return CandidateShards(lambda: blocks(names), files=files)

        return CandidateShards(blocks, narrow, lambda: ((path,) for path in files), files)

    @staticmethod
    def of_parts(parts: Callable[[], Iterator[bytes]]) -> CandidateShards:
        """Wrap a function that makes the blocks as :meth:`Candidates.to_bytes` writes them."""
        return CandidateShards(lambda: map(Candidates.from_bytes, parts()), layers=lambda: ((p,) for p in parts()))

    def save(self, folder: File) -> list[Part]:
        """Write the blocks into a folder, one after the other."""
        return write_all(self.parts(), folder)

    def layers(self) -> Iterator[Layers]:
        """Yield what each block is put together from by ``layout``; what is stored is not read for it."""
        return self._layers() if self._layers is not None else ((block.to_bytes(),) for block in self)

    def parts(self) -> Iterator[bytes]:
        """Yield each block as :meth:`Candidates.to_bytes` writes it; what is stored so is not decoded for it."""
        for layers in self.layers():
            plain = len(layers) == 1 and self.layout.expanded is None
            yield read(layers[0]) if plain else self.layout(layers).to_bytes()

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
            layout=self.layout,
            depth=self._depth + 1,
        )

    def by_positive(self) -> CandidateShards:
        """Return the blocks with one row per (query, positive); see :meth:`Candidates.by_positive`."""
        return CandidateShards(
            lambda: (block.by_positive() for block in self),
            lambda names: self.only(*names).by_positive(),
            self.layers,
            layout=Layout(self._depth),
            depth=self._depth,
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
