"""Single files: tables, JSON and text as kedro-datasets writes them, never seen half-written, and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
from kedro.utils import load_obj

from anmi.datasets.artifact import ArtifactDataset, table_preview, where_made
from anmi.files import plain

if TYPE_CHECKING:
    # By these names kedro-viz knows how to show a preview.
    from kedro_datasets._typing import JSONPreview, PlotlyPreview, TablePreview

    from anmi.selection.row_table import TrainingRows


class PlainDataset(ArtifactDataset):
    """A file that a dataset of kedro-datasets writes and reads.

    That dataset sees a local path only; versions, writing aside, buckets and errors are those of every artifact.

    Attributes
    ----------
    kind
        Its name inside ``kedro_datasets``.
    options
        What it is made with, besides the path.
    """

    kind: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}

    def _plain(self, path: Path) -> Any:
        return load_obj(f"kedro_datasets.{self.kind}")(filepath=path.as_posix(), **self.options)

    def _write(self, data: Any, path: Path) -> None:
        # The functions themselves: Kedro wraps them to name the file in errors, and would name a temporary one.
        plain = self._plain(path)
        plain.save.__wrapped__(plain, data)

    def _read(self, path: Path) -> Any:
        plain = self._plain(path)
        return plain.load.__wrapped__(plain)


# Bytes of a file; in memory a table has several times as many.
_SMALL: Final = 64 << 20
_UTF8: Final = {"open_args_save": {"encoding": "utf-8"}, "open_args_load": {"encoding": "utf-8"}}


class JsonDataset(PlainDataset):
    """One JSON document, UTF-8, indented; numbers are finite."""

    kind = "json.JSONDataset"
    options: ClassVar = {"save_args": {"indent": 2, "ensure_ascii": False, "allow_nan": False}, "fs_args": _UTF8}

    def _write(self, data: Any, path: Path) -> None:
        super()._write(plain(data), path)

    @where_made
    def preview(self) -> JSONPreview:
        """Show the document in kedro-viz."""
        return cast("JSONPreview", self._plain(self.local_copy()).preview())


class FigureDataset(PlainDataset):
    """One plotly figure as a JSON document, which kedro-viz draws."""

    kind = "plotly.JSONDataset"
    options: ClassVar = {"fs_args": {"open_args_save": {"encoding": "utf-8"}}}

    @where_made
    def preview(self) -> PlotlyPreview:
        """Show the figure in kedro-viz."""
        return cast("PlotlyPreview", self._plain(self.local_copy()).preview())


class TextDataset(PlainDataset):
    """One text file, UTF-8: the report, for example."""

    kind = "text.TextDataset"
    options: ClassVar = {"fs_args": _UTF8}


class TableDataset(PlainDataset):
    """One pandas table as a Parquet file; the index is not kept."""

    kind = "pandas.ParquetDataset"
    options: ClassVar = {
        "save_args": {"index": False, "compression": "zstd", "write_page_checksum": True},
        "load_args": {"page_checksum_verification": True},
    }

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._opened: tuple[Path, Any] | None = None

    def _write(self, data: Any, path: Path) -> None:
        self._opened = None
        self.rows = len(data)
        super()._write(data, path)

    def _table(self, path: Path) -> Any:
        return super()._read(path)

    def _read(self, path: Path) -> Any:
        """Read the table; a small one, which many nodes ask for, once until Kedro releases the dataset."""
        if self._opened is not None and self._opened[0] == path:
            return self._opened[1].copy(deep=False)
        table = self._table(path)
        if path.stat().st_size <= _SMALL:
            # Copy-on-write: what a node does to its copy reaches no other.
            self._opened = path, table
            return table.copy(deep=False)
        return table

    def _release(self) -> None:
        super()._release()
        self._opened = None

    @where_made
    def preview(self, nrows: int = 5) -> TablePreview:
        """Show the first rows in kedro-viz, without reading the others."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.local_copy()) as file:
            first = next(file.iter_batches(nrows), None)
            rows = pa.Table.from_batches([] if first is None else [first], file.schema_arrow)
        return table_preview(rows.to_pandas())


class TrainingRowsDataset(TableDataset):
    """Training rows as a Parquet file: written from rows that hold documents by number, read as a pandas table."""

    def _write(self, data: TrainingRows, path: Path) -> None:
        self._opened = None
        self.rows = len(data)
        data.save(path)

    def _table(self, path: Path) -> Any:
        # Arrow is not needed to name a dataset.
        from anmi.selection.row_table import load

        return load(path)


class NumpyDataset(ArtifactDataset):
    """One array as a ``.npy`` file.

    Parameters
    ----------
    filepath, version, metadata
        See :class:`ArtifactDataset`.
    memory_mapped
        Load a read-only view of the file instead of a copy of it.
    """

    def __init__(self, *, memory_mapped: bool = False, **given: Any) -> None:
        super().__init__(**given)
        self._memory_mapped = memory_mapped

    def _write(self, data: Any, path: Path) -> None:
        # Through a handle, because numpy appends .npy to a path that lacks it.
        with path.open("wb") as file:
            np.save(file, np.asarray(data), allow_pickle=False)
        self.rows = len(data) if np.ndim(data) else None

    def _read(self, path: Path) -> Any:
        return np.load(path, mmap_mode="r" if self._memory_mapped else None, allow_pickle=False)
