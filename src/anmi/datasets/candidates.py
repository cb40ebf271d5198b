"""Candidates on disk, and the columns that stages add to them: folders of Parquet shards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from kedro.io.core import DatasetError

from anmi.candidates import Candidates, CandidateShards, ColumnShards
from anmi.candidates.shards import Part
from anmi.datasets.artifact import ArtifactDataset, table_preview, where_made
from anmi.ragged import read_table

if TYPE_CHECKING:
    from kedro_datasets._typing import TablePreview

_PATTERN: Final = "part-*.parquet"


class _PartsDataset(ArtifactDataset):
    """A folder of parts."""

    is_folder: ClassVar[bool] = True

    @abstractmethod
    def _save_parts(self, data: Any, folder: Path) -> list[Part]:
        """Have ``data`` written into a folder; return what was written."""

    @abstractmethod
    def _of_files(self, files: Sequence[Path]) -> Any:
        """Return what the files of the parts hold."""

    def _write(self, data: Any, path: Path) -> dict[str, str]:
        path.mkdir()
        parts = self._save_parts(data, path)
        self.rows = sum(part.rows for part in parts)
        return {part.name: part.digest for part in parts}

    def _read(self, path: Path) -> Any:
        return self._of_files(sorted(path.glob(_PATTERN)))


class CandidateShardsDataset(_PartsDataset):
    """Blocks of candidates, one Parquet file per block, read and written one block at a time.

    Saving pulls the blocks through the functions that make them, so memory holds one block; equal blocks give equal
    bytes. Loading returns :class:`anmi.candidates.CandidateShards` that read the files at each pass.

    Parameters
    ----------
    filepath, version, metadata
        See :class:`ArtifactDataset`.
    source
        With it the dataset is a view of what this source retrieved, best first, and cannot be saved.
    """

    def __init__(self, *, source: str | None = None, **given: Any) -> None:
        super().__init__(**given)
        self._source = source

    def _save_parts(self, data: CandidateShards | Candidates, folder: Path) -> list[Part]:
        if self._source is not None:
            raise DatasetError(f"what {self._source} retrieved is read from {self._filepath.name} and saved with it")
        if not isinstance(data, (Candidates, CandidateShards)):
            raise DatasetError(f"expected candidates for {self._filepath.name}, got {type(data).__name__}")
        shards = CandidateShards.of([data]) if isinstance(data, Candidates) else data
        return shards.save(folder)

    def _of_files(self, files: Sequence[Path]) -> CandidateShards:
        shards, source = CandidateShards.read(files), self._source
        return shards if source is None else shards.map(lambda block: block.of_source(source))

    @where_made
    def preview(self) -> TablePreview:
        """Show the first rows in kedro-viz."""
        first = next(iter(self.load()), None)
        if first is None:
            return cast("TablePreview", {})
        return table_preview(first.take(slice(0, 5)).to_table().to_pandas())


class ColumnsDataset(_PartsDataset):
    """The columns that a stage adds to candidates, one Parquet file per block and nothing of the block itself.

    A stage that had nothing to add leaves no part. Loading returns :class:`anmi.candidates.ColumnShards`, which
    :meth:`anmi.candidates.CandidateShards.joined` takes by position.
    """

    def _save_parts(self, data: ColumnShards, folder: Path) -> list[Part]:
        if not isinstance(data, ColumnShards):
            raise DatasetError(f"expected columns for {self._filepath.name}, got {type(data).__name__}")
        return data.save(folder)

    def _of_files(self, files: Sequence[Path]) -> ColumnShards:
        return ColumnShards(files=files)

    @where_made
    def preview(self) -> TablePreview:
        """Show the first rows in kedro-viz."""
        part = next(self.load().parts(), None)
        if part is None:
            return cast("TablePreview", {})
        table = read_table(part).slice(0, 5)
        return table_preview(table.to_pandas())
