"""What an earlier run saved, for a run that makes its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kedro.io.core import DatasetError, Version
from kedro.utils import load_obj

from anmi.datasets.artifact import ArtifactDataset

_JSON: Final = "anmi.datasets.JsonDataset"
# The version to load where nothing is to be found, whatever is saved meanwhile; no run is called that.
ABSENT: Final = "absent"


class EarlierDataset(ArtifactDataset):
    """The newest version of an artifact that an earlier run saved, for the node that makes the next one.

    Where there is none, a JSON document is {} and anything else None. What this run saved already does not count: a
    task that is tried again finds it there. The catalog entry must be versioned, as that of the artifact is.

    Parameters
    ----------
    filepath, version, credentials, fs_args, metadata
        See :class:`ArtifactDataset`.
    of
        How the artifact is read: the dataset it was saved by.
    loader
        Of a folder, see :class:`anmi.datasets.FolderDataset`.
    together
        Artifacts, by their path or URL, that must have the same newest version; else this one counts as absent. A
        path without a suffix is that of a folder. A run that was killed leaves some artifacts and not others.
    """

    def __init__(
        self,
        *,
        filepath: str,
        version: Version | None = None,
        credentials: dict[str, Any] | None = None,
        fs_args: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        of: str = _JSON,
        loader: str | None = None,
        together: Sequence[str] = (),
    ) -> None:
        super().__init__(
            filepath=filepath, version=version, credentials=credentials, fs_args=fs_args, metadata=metadata
        )
        self._kind: Any = load_obj(of)
        self._loader = loader
        self._opened: Any = None
        # Each has its own; a folder in a bucket counts when its upload finished.
        self.is_folder = self._kind.is_folder  # type: ignore[misc]
        self._absent: Any = {} if of == _JSON else None
        opened = {"version": Version(None, version and version.save), "credentials": credentials, "fs_args": fs_args}
        kinds = ("JsonDataset" if Path(place).suffix else "FolderDataset" for place in together)
        self._together = [
            EarlierDataset(filepath=place, of=f"anmi.datasets.{kind}", **opened)
            for place, kind in zip(together, kinds, strict=True)
        ]

    def load(self) -> Any:
        """Read the artifact, if there is any."""
        return self._absent if self.resolve_load_version() is None else super().load()

    def _read(self, path: Path) -> Any:
        options = {} if self._loader is None else {"loader": self._loader}
        return self._kind(filepath=str(path), **options)._read(path)

    def _write(self, data: Any, path: Path) -> None:
        raise DatasetError(f"{self._filepath} is read here as that of an earlier run and saved under another name")

    def versions(self) -> Iterator[str]:
        """Yield the versions before that of this run, the newest first."""
        own = self._version.save if self._version else None
        return (version for version in super().versions() if own is None or version < own)

    def newest(self, counts: Callable[[str], bool] = lambda _: True) -> str | None:
        """Return the newest version, None where there is none or not all that belongs to it.

        Parameters
        ----------
        counts
            Tells of a version whether it is looked at.
        """
        version = next((version for version in self.versions() if counts(version)), None)
        return version if all(other.newest(counts) == version for other in self._together) else None

    def resolve_load_version(self) -> str | None:
        """Return the version that is read; None where there is none."""
        if self._version is None or not self._version.load:
            return self.newest() if self._version else None
        # Who asks for a version by name, as a repetition does, knows what belongs to it.
        return None if self._version.load == ABSENT else str(self._version.load)
