"""Candidates on disk, and the columns that stages add to them: folders of Parquet shards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from kedro.io.core import DatasetError

from anmi.candidates import Candidates, CandidateShards, ColumnShards
from anmi.datasets.artifact import ArtifactDataset

if TYPE_CHECKING:
    from kedro_datasets._typing import TablePreview

_MANIFEST: Final = "columns.json"
_KINDS: Final = {"c": "columns", "p": "positive_columns", "q": "query_columns"}


class CandidateShardsDataset(ArtifactDataset):
    """Blocks of candidates, one Parquet file per block, read and written one block at a time.

    Saving pulls the blocks through the functions that make them, so memory holds one block; equal blocks give equal
    bytes. Loading returns :class:`anmi.candidates.CandidateShards` that read the files at each pass.

    Parameters
    ----------
    filepath, version, credentials, fs_args, metadata
        See :class:`ArtifactDataset`.
    source
        With it the dataset is a view of what this source retrieved, best first, and cannot be saved.
    """

    is_folder: ClassVar[bool] = True

    def __init__(self, *, source: str | None = None, **given: Any) -> None:
        super().__init__(**given)
        self._source = source

    def _write(self, data: CandidateShards | Candidates, path: Path) -> None:
        if self._source is not None:
            raise DatasetError(f"what {self._source} retrieved is read from {self._filepath.name} and saved with it")
        if not isinstance(data, (Candidates, CandidateShards)):
            raise DatasetError(f"expected candidates for {self._filepath.name}, got {type(data).__name__}")
        path.mkdir()
        shards = CandidateShards.of([data]) if isinstance(data, Candidates) else data
        _write_parts(shards.parts(), path)
        self.rows = _rows(path)

    def _read(self, path: Path) -> CandidateShards:
        shards = CandidateShards.read(_parts_of(path))
        source = self._source
        return shards if source is None else shards.map(lambda block: block.of_source(source))

    def preview(self) -> TablePreview:
        """Show the first rows in kedro-viz."""
        first = next(iter(self.load()), None)
        table = first.take(slice(0, 5)).to_table().to_pandas().astype(str) if first is not None else None
        return cast("TablePreview", {} if table is None else table.to_dict(orient="split"))


class ColumnsDataset(ArtifactDataset):
    """The columns that a stage adds to candidates, one Parquet file per block and nothing of the block itself.

    ``columns.json`` names them. A stage that had nothing to add leaves no part. Loading returns
    :class:`anmi.candidates.ColumnShards`, which :meth:`anmi.candidates.CandidateShards.joined` takes by position.
    """

    is_folder: ClassVar[bool] = True

    def _write(self, data: ColumnShards, path: Path) -> None:
        if not isinstance(data, ColumnShards):
            raise DatasetError(f"expected columns for {self._filepath.name}, got {type(data).__name__}")
        path.mkdir()
        manifest: dict[str, Any] = {"parts": _write_parts(data.parts(), path)} | {kind: [] for kind in _KINDS.values()}
        for first in _parts_of(path)[:1]:
            for name in pq.read_schema(first).names:
                manifest[_KINDS[name[0]]].append(name[2:])
        self.rows = _rows(path)
        (path / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    def _read(self, path: Path) -> ColumnShards:
        return ColumnShards(files=_parts_of(path))

    def preview(self) -> TablePreview:
        """Show the first rows in kedro-viz."""
        part = next(self.load().parts(), None)
        if part is None:
            return cast("TablePreview", {})
        table = pq.read_table(pa.BufferReader(part)).slice(0, 5)
        return cast("TablePreview", table.to_pandas().astype(str).to_dict(orient="split"))


def _write_parts(parts: Iterable[bytes], path: Path) -> int:
    count = 0
    for count, part in enumerate(parts, start=1):
        (path / f"part-{count - 1:05d}.parquet").write_bytes(part)
    return count


def _rows(path: Path) -> int:
    """Count the rows of all parts, which stand in their footers."""
    return sum(pq.read_metadata(part).num_rows for part in _parts_of(path))


def _parts_of(path: Path) -> list[Path]:
    return sorted(path.glob("part-*.parquet"))
