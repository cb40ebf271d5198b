"""What all datasets of this project have in common: versions, and writing aside before renaming."""

from __future__ import annotations

import json
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from kedro.io.core import (
    AbstractVersionedDataset,
    DatasetError,
    Version,
    VersionNotFoundError,
    get_protocol_and_path,
)

from anmi import buckets
from anmi.errors import AnmiError
from anmi.files import aside, measured, room
from anmi.fingerprint import hash_value

if TYPE_CHECKING:
    import pandas as pd
    from kedro_datasets._typing import TablePreview


class ArtifactDataset(AbstractVersionedDataset[Any, Any]):  # type: ignore[misc]
    """A versioned file or folder; subclasses say how to write it to and read it from a local path.

    Remote locations (anything fsspec knows) are written to a local folder first and then uploaded;
    a folder counts as present only when its upload finished. A version never changes, so what was
    uploaded or downloaded once is kept until Kedro releases the dataset, and not downloaded again.
    Before a version is first read, memory-mapped ones too, all its files are hashed and compared
    with what the run that saved it noted.

    Parameters
    ----------
    filepath
        Path or URL of the artifact.
    version
        Given by Kedro for ``versioned: true``.
    metadata
        Read by kedro-viz and by the tracking hook.
    """

    is_folder: ClassVar[bool] = False
    _cached_load_version: str | None
    _version: Version | None
    _init_args: dict[str, Any]

    def __init__(
        self,
        *,
        filepath: str,
        version: Version | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self._protocol, path = get_protocol_and_path(filepath, version)
        self.metadata = metadata
        self._url = filepath
        self._download_folder: Path | None = None
        # The version whose files were compared with what was saved, and the one saved last.
        self._checked: PurePosixPath | None = None
        self._saved: PurePosixPath | None = None
        # Files, bytes and digest of what was saved last, see measured().
        self.written: dict[str, Any] = {}
        # What was read last, for those that keep it until Kedro releases them.
        self._cached: tuple[Path, Any] | None = None
        self._fs = None if self._protocol == "file" else buckets.file_system(filepath)
        exists = None if self._fs is None else self._remote_exists
        glob = self._local_versions if self._fs is None else self._remote_versions
        super().__init__(PurePosixPath(path), version, exists, glob)

    def _init_config(self) -> dict[str, Any]:
        # Kedro notes what a subclass hands on under the name of its **parameter.
        arguments = dict(self._init_args)
        arguments.pop("args", None)
        for handed_on in ("kwargs", "options"):
            arguments |= arguments.pop(handed_on, {})
        self._init_args = arguments
        return dict(super()._init_config())

    @abstractmethod
    def _write(self, data: Any, path: Path) -> Mapping[str, str] | None:
        """Write ``data`` to a new local path; return the hashes of files that are at hand."""

    @abstractmethod
    def _read(self, path: Path) -> Any:
        """Read from a local path."""

    def save(self, data: Any) -> None:
        """Write the artifact; nothing is seen of it before it is complete."""
        target = self._get_save_path()
        self._saved = self._checked = self._cached = None
        local = Path(target) if self._fs is None else self._copy_of(target)
        with aside(local) as path:
            self.written = measured(path, self._write(data, path))
        if self._fs is not None:
            buckets.upload(self._fs, local, str(target), self._place_of(target))
            self._fs.invalidate_cache(str(self._filepath))
        self._saved = target

    def discard(self) -> None:
        """Remove what lies where ``save`` writes to; it counts as absent at once."""
        version = self.resolve_save_version()
        path = self._get_versioned_path(version) if version else self._filepath
        buckets.remove(self._place_of(path))
        if self._fs is not None:
            self._fs.invalidate_cache(str(self._filepath))

    def load(self) -> Any:
        """Read the artifact, the newest version unless another is asked for.

        Raises
        ------
        AnmiError
            It is damaged.
        """
        local = self.local_copy()
        if self._cached is None or self._cached[0] != local:
            try:
                data = self._read(local)
            except (AnmiError, DatasetError, ImportError, MemoryError):
                raise
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
                raise AnmiError(f"{self.place()} cannot be read ({reason}): {_AGAIN}") from error
            if not self._is_cached(local):
                return data
            self._cached = (local, data)
        return self._shared(self._cached[1])

    def _is_cached(self, path: Path) -> bool:
        """Tell whether all nodes are given the same object, which they must not change."""
        return False

    def _shared(self, data: Any) -> Any:
        """Return what a node is given of cached data."""
        return data

    def place(self) -> str:
        """Return where the artifact lies that would be loaded: a path, or a URL."""
        return self._place_of(self._get_load_path())

    def local_copy(self) -> Path:
        """Return a local path of the artifact that ``load`` reads, downloading a remote one."""
        source: PurePosixPath = self._get_load_path()
        local = Path(source) if self._fs is None else self._copy_of(source)
        if self._fs is not None and self._version and local.exists():
            return local
        if not self._exists_function(str(source)):
            raise DatasetError(f"{self._place_of(source)} does not exist")
        if self._fs is not None:
            with aside(local) as path:
                buckets.download(self._fs, str(source), path, self._place_of(source))
        self._check(source, local)
        return local

    def _check(self, source: PurePosixPath, local: Path) -> None:
        """Compare a version once with what was noted when it was saved, if anything was."""
        if self._version is None or self._checked == source:
            return
        version = source.parent.name
        noted = self.written if self._saved == source else saved_record(self._url, version)
        if noted:
            current = measured(local)
            facts = [fact for fact in ("files", "bytes", "digest") if fact in noted]
            if any(noted[fact] != current[fact] for fact in facts):
                raise AnmiError(
                    f"{self._place_of(source)} is damaged, since it is not what run {version}"
                    f" saved: {_AGAIN}"
                )
        self._checked = source

    def _place_of(self, path: PurePosixPath) -> str:
        """Return a path as people write it, with the protocol of the catalog entry."""
        version = str(path).removeprefix(str(self._filepath))
        return str(path) if self._fs is None else self._url.rstrip("/") + version

    def _copy_of(self, path: PurePosixPath) -> Path:
        if self._download_folder is None:
            self._download_folder = Path(tempfile.mkdtemp(dir=room("anmi-downloads-")))
        return self._download_folder / path.relative_to(self._filepath.parent)

    def _remote_exists(self, path: str) -> bool:
        assert self._fs is not None
        marker = f"{path}/{buckets.COMPLETE}" if self.is_folder else path
        with buckets.in_one_sentence(self._url):
            # What other processes have written since is not in the cache.
            self._fs.invalidate_cache(marker)
            return bool(self._fs.exists(marker))

    def _local_versions(self, _: str = "") -> list[str]:
        """Return the paths of all versions; brackets in the data root are no wildcards."""
        return list(map(str, Path(self._filepath).glob(f"*/{self._filepath.name}")))

    def _remote_versions(self, _: str = "") -> list[str]:
        """Return the paths of all versions, finished or not, by one listing."""
        assert self._fs is not None
        with buckets.in_one_sentence(self._url):
            names = buckets.listed(self._fs, str(self._filepath))
        return [
            str(self._get_versioned_path(name)) for name in names if name != self._filepath.name
        ]

    @property
    def is_versioned(self) -> bool:
        """Whether the catalog entry says ``versioned: true``."""
        return self._version is not None

    @property
    def load_version(self) -> str | None:
        """The version that ``load`` reads; None for the newest one."""
        return self._version.load if self._version else None

    def fix_load_version(self, version: str) -> None:
        """Let ``load`` read this version from now on, whatever is saved meanwhile."""
        self._version = Version(version, self._version.save if self._version else None)

    def has_version(self, version: str) -> bool:
        """Tell whether a version is there, finished."""
        return bool(self._exists_function(str(self._get_versioned_path(version))))

    def versions(self) -> Iterator[str]:
        """Yield the saved versions, the newest first; each look at a bucket is a request."""
        for path in sorted(self._glob_function(str(self._get_versioned_path("*"))), reverse=True):
            if self._exists_function(path):
                yield PurePosixPath(path).parent.name

    def _fetch_latest_load_version(self) -> str:
        """Look at the newest versions first; Kedro looks at all."""
        if self._cached_load_version is None:
            self._cached_load_version = next(self.versions(), None)
        if self._cached_load_version is None:
            raise VersionNotFoundError(f"Did not find any versions for {self}")
        return self._cached_load_version

    def _exists(self) -> bool:
        return bool(self._exists_function(str(self._get_load_path())))

    def _release(self) -> None:
        super()._release()
        self._cached = None
        if self._download_folder is not None:
            shutil.rmtree(self._download_folder, ignore_errors=True)
            self._download_folder = None

    def _describe(self) -> dict[str, Any]:
        return {"filepath": self._filepath, "protocol": self._protocol, "version": self._version}


def saved_record(url: str, version: str) -> dict[str, Any]:
    """Return what a run noted of an artifact at ``<data>/<layer>/<dataset>``; else nothing."""
    root, _, name = f"./{url}".rsplit("/", 2) if url.count("/") < 2 else url.rsplit("/", 2)
    saved = record_of(root, version).get("saved", {})
    noted = saved.get(name) or saved.get(name.rpartition(".")[0], {})
    return dict(noted) if noted.get("version") == version else {}


def record_of(root: str, run_id: str) -> dict[str, Any]:
    """Return what a run noted in its ``run.json`` under a data root; empty where there is none.

    Raises
    ------
    AnmiError
        It is there and is damaged, or no record of this run.
    """
    place = f"{root}/runs/{run_id}/run.json"
    text = buckets.read_text(place)
    if text is None:
        return {}
    try:
        record = dict(json.loads(text))
        is_whole = record.pop("digest", None) in (None, hash_value(record))
        entries = [*record["loaded"].values(), *record["saved"].values()]
        has_fields = {"start", "status"} <= record.keys()
        is_record = has_fields and all(isinstance(entry, dict) for entry in entries)
        if is_whole and is_record and record["run_id"] == run_id:
            return record
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise AnmiError(
        f"{place} is no record of run {run_id}, or damaged: put it back from a copy, or remove the"
        " folder"
    )


_AGAIN: Final = "put it back from a copy, or make it again with `kedro run`"
# Characters of an error, and of a cell: a document, or a list of all candidates, would fill the
# page.
_LONGEST: Final = 120
_Preview = TypeVar("_Preview", bound=Callable[..., Any])


def where_made(preview: _Preview) -> _Preview:
    """Make a preview None where nothing was saved; Kedro-Viz would warn in five lines."""

    @wraps(preview)
    def shown(self: ArtifactDataset, **options: Any) -> Any:
        return preview(self, **options) if self.exists() else None

    return cast("_Preview", shown)


def table_preview(rows: pd.DataFrame) -> TablePreview:
    """Return rows as short texts, since lists and missing values are no JSON."""

    def short(value: Any) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

    return cast("TablePreview", rows.astype(object).map(short).to_dict(orient="split"))
