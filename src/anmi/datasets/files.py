"""Datasets of files and folders: tables, JSON, text, arrays, and shards of candidates."""

from __future__ import annotations

import json
import pkgutil
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
from kedro.io import MemoryDataset
from kedro.io.core import AbstractDataset, DatasetError

from anmi.candidates import CandidateShards, ColumnShards
from anmi.datasets.artifact import ArtifactDataset, table_preview, where_made
from anmi.errors import AnmiError
from anmi.files import plain
from anmi.ragged import read_table

if TYPE_CHECKING:
    import pandas as pd
    from kedro_datasets._typing import JSONPreview, PlotlyPreview, TablePreview

    from anmi.selection.rows import TrainingRows


class JsonDataset(ArtifactDataset):
    """One JSON document, UTF-8, indented; numbers are finite."""

    def _write(self, data: Any, path: Path) -> None:
        text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
        path.write_text(text, encoding="utf-8")

    def _read(self, path: Path) -> Any:
        return json.loads(path.read_text(encoding="utf-8"))

    @where_made
    def preview(self) -> JSONPreview:
        """Show the document in kedro-viz."""
        return cast("JSONPreview", json.dumps(self.load()))


class FigureDataset(JsonDataset):
    """One plotly figure as a JSON document, which kedro-viz draws."""

    def _write(self, data: Any, path: Path) -> None:
        super()._write(data.to_plotly_json(), path)

    def _read(self, path: Path) -> Any:
        from plotly.graph_objects import Figure

        return Figure(super()._read(path))

    @where_made
    def preview(self) -> PlotlyPreview:
        """Show the figure in kedro-viz."""
        return cast("PlotlyPreview", super()._read(self.local_copy()))


class TextDataset(ArtifactDataset):
    """One text file, UTF-8: the report, for example."""

    def _write(self, data: str, path: Path) -> None:
        path.write_text(data, encoding="utf-8", newline="")

    def _read(self, path: Path) -> str:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()


class HandedOnDataset(MemoryDataset):  # type: ignore[misc]
    """An object that nodes hand on as it is; `kedro catalog resolve-patterns` can write it."""

    def __init__(self, *, metadata: dict[str, Any] | None = None) -> None:
        super().__init__(copy_mode="assign", metadata=metadata)


# Bytes of a file; in memory a table has several times as many.
_SMALL: Final = 64 << 20


class TableDataset(ArtifactDataset):
    """One pandas table as a Parquet file, without its index; a small one is read once a run."""

    def _write(self, data: Any, path: Path) -> None:
        data.to_parquet(path, index=False, compression="zstd", write_page_checksum=True)

    def _read(self, path: Path) -> Any:
        import pandas as pd

        return pd.read_parquet(path, page_checksum_verification=True)

    def _is_cached(self, path: Path) -> bool:
        return path.stat().st_size <= _SMALL

    def _shared(self, data: Any) -> Any:
        # Copy-on-write: what a node does to its copy reaches no other.
        return data.copy(deep=False)

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
    """Training rows as a Parquet file: saved with documents by number, loaded as a table."""

    def _write(self, data: TrainingRows, path: Path) -> None:
        data.save(path)

    def _read(self, path: Path) -> Any:
        # Arrow is not needed to name a dataset.
        from anmi.selection.rows import load

        return load(path)


class NumpyDataset(ArtifactDataset):
    """One array as a ``.npy`` file; ``memory_mapped`` loads a read-only view of it."""

    def __init__(self, *, memory_mapped: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._memory_mapped = memory_mapped

    def _write(self, data: Any, path: Path) -> None:
        # Through a handle, because numpy appends .npy to a path that lacks it.
        with path.open("wb") as file:
            np.save(file, np.asarray(data), allow_pickle=False)

    def _read(self, path: Path) -> Any:
        return np.load(path, mmap_mode="r" if self._memory_mapped else None, allow_pickle=False)


def resolve_loader(dotted: str) -> Callable[[Path], Any]:
    """Return the function or class method that a catalog entry names, from this package only."""
    parts = dotted.split(".")
    if parts[0] != "anmi" or not all(
        part.isidentifier() and not part.startswith("_") for part in parts
    ):
        raise DatasetError(
            f"loader {dotted!r} is not allowed: it must be a public name inside the anmi package"
        )
    with suppress(ImportError, AttributeError):
        loader: Any = pkgutil.resolve_name(dotted)
        # Modules of this package may hold names that they imported from elsewhere.
        if callable(loader) and str(getattr(loader, "__module__", "")).split(".")[0] == "anmi":
            return cast("Callable[[Path], Any]", loader)
    raise DatasetError(f"loader {dotted!r} does not exist")


class FolderDataset(ArtifactDataset):
    """A folder written by an object with ``save(path)``, or one that is made already.

    A folder given as a ``Path`` is moved when it lies in the system's temporary folder, copied
    otherwise. Loading returns the path, or what ``loader``, the dotted name of a function inside
    ``anmi``, makes of it. A ``sealed`` folder has hashes of its files, by which its loader checks
    them; it may go on without some.
    """

    is_folder: ClassVar[bool] = True

    def __init__(self, *, loader: str | None = None, sealed: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._loader = loader
        self._sealed = sealed

    def _check(self, source: PurePosixPath, local: Path) -> None:
        if not self._sealed:
            super()._check(source, local)

    def _write(self, data: Any, path: Path) -> None:
        if isinstance(data, (str, Path)):
            source = Path(data)
            if not source.is_dir():
                raise DatasetError(f"{source} is not a folder")
            temporary = source.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve())
            shutil.move(source, path) if temporary else shutil.copytree(source, path)
        elif hasattr(data, "save"):
            path.mkdir()
            data.save(path)
        else:
            raise DatasetError(
                f"{type(data).__name__} has no save(path), so it cannot become a folder"
            )

    def _read(self, path: Path) -> Any:
        return resolve_loader(self._loader)(path) if self._loader else path

    def _is_cached(self, path: Path) -> bool:
        return bool(self._loader)


class StoreDataset(AbstractDataset[Any, Any]):  # type: ignore[misc]
    """The content-addressed cache of embeddings and judgments, shared by the nodes of a run.

    It is a cache and not an artifact: it has no versions, and nodes write into it rather than save
    it.

    Parameters
    ----------
    filepath
        Folder of the store; made when absent.
    metadata
        Read by kedro-viz.
    """

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        if "://" in filepath:
            raise AnmiError(
                f"the store {filepath} is remote, and it needs a local disk: name a folder in"
                " ANMI_STORE"
            )
        self._filepath = Path(filepath)
        self.metadata = metadata
        self._store: Any = None

    def load(self) -> Any:
        """Open the store."""
        if self._store is None:
            from anmi.store import Store

            self._store = Store(self._filepath)
        return self._store

    def save(self, data: Any) -> None:
        """Refuse: nodes write into the store while they work."""
        raise DatasetError(
            "the store is a cache that nodes write into; it cannot be the output of a node"
        )

    def _exists(self) -> bool:
        return True

    def _release(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath)}


_PATTERN: Final = "part-*.parquet"


class CandidateShardsDataset(ArtifactDataset):
    """Blocks of candidates, one Parquet file per block, read and written one block at a time.

    Saving pulls the blocks through the functions that make them, so memory holds one block; equal
    blocks give equal bytes. Loading returns :class:`anmi.candidates.CandidateShards` that read the
    files at each pass.
    """

    is_folder: ClassVar[bool] = True
    holds: ClassVar[type[CandidateShards | ColumnShards]] = CandidateShards

    def _write(self, data: Any, path: Path) -> dict[str, str]:
        if not isinstance(data, self.holds):
            raise DatasetError(
                f"{self._filepath.name} takes {self.holds.__name__} and was given"
                f" {type(data).__name__}"
            )
        path.mkdir()
        return {part.name: part.digest for part in data.save(path)}

    def _read(self, path: Path) -> Any:
        return CandidateShards.read(sorted(path.glob(_PATTERN)))

    @where_made
    def preview(self) -> TablePreview:
        """Show the first rows in kedro-viz."""
        first = min(self.local_copy().glob(_PATTERN), default=None)
        return (
            cast("TablePreview", {})
            if first is None
            else table_preview(read_table(first).slice(0, 5).to_pandas())
        )


class ColumnsDataset(CandidateShardsDataset):
    """The columns that a stage adds to candidates, one Parquet file a block.

    A stage that had nothing to add leaves no part. Loading returns
    :class:`anmi.candidates.ColumnShards`, which :meth:`anmi.candidates.CandidateShards.joined`
    takes by position.
    """

    holds = ColumnShards

    def _read(self, path: Path) -> Any:
        return ColumnShards(files=sorted(path.glob(_PATTERN)))


class TableColumns:
    """Require columns of a table, and that none of some columns repeats a value or lacks one.

    Parameters
    ----------
    required
        Names that must be among the table's columns.
    unique
        Those of them whose values are ids: each stands in one row.

    Examples
    --------
    >>> import pandas as pd
    >>> queries = pd.DataFrame({"query_id": ["q1", "q1"], "text": ["a", "b"]})
    >>> TableColumns(["query_id", "text"], ["query_id"]).validate(queries)
    Traceback (most recent call last):
    anmi.errors.AnmiError: query_id "q1" stands in more than one row: give each row an id of its own
    """

    def __init__(self, required: Sequence[str], unique: Sequence[str] = ()) -> None:
        self.required = list(required)
        self.unique = list(unique)

    def validate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table as it is.

        Raises
        ------
        AnmiError
            A column is not there, an id is empty, or one repeats.
        """
        absent = [column for column in self.required if column not in table.columns]
        if absent:
            raise AnmiError(
                f"the table has no column {', '.join(absent)} (it has {', '.join(table.columns)}):"
                " name its columns as this project writes them"
            )
        for column in self.unique:
            ids = table[column]
            if ids.isna().any():
                row = int(ids.isna().to_numpy().argmax())
                raise AnmiError(f"{column} is empty in row {row}: give each row an id")
            repeated = ids[ids.duplicated()]
            if len(repeated):
                raise AnmiError(
                    f'{column} "{repeated.iloc[0]}" stands in more than one row: give each row an'
                    " id of its own"
                )
        return table
