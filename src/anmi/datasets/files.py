"""Single files: tables, JSON, text, arrays. Unlike the general ones they are never seen half-written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kedro.io.core import Version

from anmi.datasets.artifact import ArtifactDataset


def plain(value: Any) -> Any:
    """Turn NumPy values, paths and NaN into what JSON knows (NaN and infinities become null).

    Examples
    --------
    >>> plain({"a": np.float32(0.5), "b": [math.nan, np.int64(2)], "c": np.arange(2)})
    {'a': 0.5, 'b': [None, 2], 'c': [0, 1]}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


class JsonDataset(ArtifactDataset):
    """One JSON document, UTF-8, indented."""

    def _write(self, data: Any, path: Path) -> None:
        path.write_text(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")

    def _read(self, path: Path) -> Any:
        return json.loads(path.read_text(encoding="utf-8"))


class TextDataset(ArtifactDataset):
    """One text file, UTF-8: the report, for example."""

    def _write(self, data: str, path: Path) -> None:
        path.write_text(data, encoding="utf-8")

    def _read(self, path: Path) -> str:
        return path.read_text(encoding="utf-8")


class TableDataset(ArtifactDataset):
    """One pandas table as a Parquet file; the index is not kept."""

    def _write(self, data: pd.DataFrame, path: Path) -> None:
        data.to_parquet(path, index=False, compression="zstd")

    def _read(self, path: Path) -> pd.DataFrame:
        return pd.read_parquet(path)

    def preview(self) -> Any:
        """Show the first rows in kedro-viz."""
        from kedro_datasets._typing import TablePreview

        return TablePreview(self.load().head(5).astype(str).to_dict(orient="split"))


class NumpyDataset(ArtifactDataset):
    """One array as a ``.npy`` file.

    Parameters
    ----------
    filepath, version, credentials, fs_args, metadata
        See :class:`ArtifactDataset`.
    memory_mapped
        Load a read-only view of the file instead of a copy of it.
    """

    def __init__(
        self,
        *,
        filepath: str,
        memory_mapped: bool = False,
        version: Version | None = None,
        credentials: dict[str, Any] | None = None,
        fs_args: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            filepath=filepath, version=version, credentials=credentials, fs_args=fs_args, metadata=metadata
        )
        self._memory_mapped = memory_mapped

    def _write(self, data: Any, path: Path) -> None:
        # Through a handle, because numpy appends .npy to a path that lacks it.
        with path.open("wb") as file:
            np.save(file, np.asarray(data), allow_pickle=False)

    def _read(self, path: Path) -> Any:
        return np.load(path, mmap_mode="r" if self._memory_mapped else None, allow_pickle=False)
