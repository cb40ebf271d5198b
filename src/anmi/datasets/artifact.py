"""What all datasets of this project have in common: versions, and writing aside before renaming."""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import fsspec
from kedro.io.core import AbstractVersionedDataset, DatasetError, Version, get_protocol_and_path

_COMPLETE = "_complete"


@contextmanager
def aside(target: Path) -> Iterator[Path]:
    """Give a path beside ``target`` to write to; rename it to ``target`` when the block ends without an error.

    The temporary name starts with a dot and does not end like an artifact, so what a killed process leaves behind is
    never taken for a version.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with aside(folder / "a.txt") as path:
    ...     _ = path.write_text("done")
    >>> sorted(p.name for p in folder.iterdir())
    ['a.txt']
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        yield room / target.name
        if target.is_dir():
            # A full folder cannot be renamed over: move the old one out first.
            target.rename(room / f"{target.name}.old")
        (room / target.name).replace(target)
    finally:
        shutil.rmtree(room, ignore_errors=True)


class ArtifactDataset(AbstractVersionedDataset[Any, Any]):  # type: ignore[misc]
    """A versioned file or folder; subclasses say how to write it to and read it from a local path.

    Remote locations (anything fsspec knows) are written to a local folder first and then uploaded; a folder counts as
    present only when its upload finished.

    Parameters
    ----------
    filepath
        Path or URL of the artifact.
    version
        Given by Kedro for ``versioned: true``.
    credentials, fs_args
        Passed to the file system of a URL.
    metadata
        Read by kedro-viz and by the tracking hook.
    """

    is_folder: ClassVar[bool] = False

    def __init__(
        self,
        *,
        filepath: str,
        version: Version | None = None,
        credentials: dict[str, Any] | None = None,
        fs_args: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self._protocol, path = get_protocol_and_path(filepath, version)
        self.metadata = metadata
        self._download: tempfile.TemporaryDirectory[str] | None = None
        if self._protocol == "file":
            self._fs = None
            super().__init__(PurePosixPath(path), version)
        else:
            self._fs = fsspec.filesystem(self._protocol, **(credentials or {}), **(fs_args or {}))
            super().__init__(
                PurePosixPath(path), version, exists_function=self._remote_exists, glob_function=self._fs.glob
            )

    @abstractmethod
    def _write(self, data: Any, path: Path) -> None:
        """Write ``data`` to a local path that does not exist yet."""

    @abstractmethod
    def _read(self, path: Path) -> Any:
        """Read from a local path."""

    def save(self, data: Any) -> None:
        """Write the artifact; nothing is seen of it before it is complete."""
        target = self._get_save_path()
        if self._fs is None:
            with aside(Path(target)) as path:
                self._write(data, path)
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / target.name
            self._write(data, path)
            self._fs.put(str(path), str(target), recursive=self.is_folder)
            if self.is_folder:
                self._fs.touch(f"{target}/{_COMPLETE}")
        self._fs.invalidate_cache(str(self._filepath))

    def load(self) -> Any:
        """Read the artifact, the newest version unless another is asked for."""
        return self._read(self._local())

    def _local(self) -> Path:
        source: PurePosixPath = self._get_load_path()
        if not self._exists_function(str(source)):
            raise DatasetError(f"{source} does not exist")
        if self._fs is None:
            return Path(source)
        if self._download is None:
            self._download = tempfile.TemporaryDirectory(prefix="anmi-")
        local = Path(self._download.name) / source.parent.name / source.name
        if not local.exists():
            local.parent.mkdir(parents=True, exist_ok=True)
            self._fs.get(str(source), str(local), recursive=self.is_folder)
            (local / _COMPLETE).unlink(missing_ok=True) if self.is_folder else None
        return local

    def _remote_exists(self, path: str) -> bool:
        assert self._fs is not None
        return bool(self._fs.exists(f"{path}/{_COMPLETE}" if self.is_folder else path))

    def _exists(self) -> bool:
        try:
            return bool(self._exists_function(str(self._get_load_path())))
        except DatasetError:
            return False

    def _release(self) -> None:
        super()._release()
        if self._download is not None:
            self._download.cleanup()
            self._download = None

    def _describe(self) -> dict[str, Any]:
        return {"filepath": self._filepath, "protocol": self._protocol, "version": self._version}
