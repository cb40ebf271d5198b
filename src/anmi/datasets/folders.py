"""Folders: indexes, models and exports that know how to save themselves, and the store."""

from __future__ import annotations

import pkgutil
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from kedro.io.core import AbstractDataset, DatasetError

from anmi.datasets.artifact import ArtifactDataset
from anmi.errors import AnmiError

if TYPE_CHECKING:
    pass


def resolve_loader(dotted: str) -> Callable[[Path], Any]:
    """Return the function or class method that a catalog entry names, from this package only.

    Parameters
    ----------
    dotted
        For example ``anmi.retrieval.bm25.BM25Index.load``.

    Raises
    ------
    DatasetError
        The name is outside ``anmi`` or does not exist.
    """
    parts = dotted.split(".")
    if parts[0] != "anmi" or not all(part.isidentifier() and not part.startswith("_") for part in parts):
        raise DatasetError(f"loader {dotted!r} is not allowed: it must be a public name inside the anmi package")
    with suppress(ImportError, AttributeError):
        found: Any = pkgutil.resolve_name(dotted)
        # Modules of this package may hold names that they imported from elsewhere.
        if callable(found) and str(getattr(found, "__module__", "")).split(".")[0] == "anmi":
            return cast("Callable[[Path], Any]", found)
    raise DatasetError(f"loader {dotted!r} does not exist")


class FolderDataset(ArtifactDataset):
    """A folder written by an object with ``save(path)``, or one that is made already.

    A folder given as a ``Path`` is moved when it lies in the system's temporary folder, copied otherwise. Loading
    returns the path, or what ``loader`` makes of it: once, for all nodes that read it before Kedro releases it, which
    therefore must not change it.

    Parameters
    ----------
    filepath, version, metadata
        See :class:`ArtifactDataset`.
    loader
        Dotted name inside ``anmi`` of a function that takes the path.
    """

    is_folder: ClassVar[bool] = True

    def __init__(self, *, loader: str | None = None, **given: Any) -> None:
        super().__init__(**given)
        self._loader = loader
        self._opened: tuple[Path, Any] | None = None

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
            raise DatasetError(f"{type(data).__name__} has no save(path), so it cannot become a folder")

    def _read(self, path: Path) -> Any:
        if not self._loader:
            return path
        if self._opened is None or self._opened[0] != path:
            self._opened = path, resolve_loader(self._loader)(path)
        return self._opened[1]

    def _release(self) -> None:
        super()._release()
        self._opened = None


class StoreDataset(AbstractDataset[Any, Any]):  # type: ignore[misc]
    """The content-addressed cache of embeddings and judgments, opened once per run and shared by the nodes.

    It is a cache and not an artifact: it has no versions, and nodes write into it rather than save it.

    Parameters
    ----------
    filepath
        Folder of the store; made when absent.
    metadata
        Read by kedro-viz.
    """

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        if "://" in filepath:
            raise AnmiError(f"the store {filepath} is remote, and it needs a local disk: name a folder in ANMI_STORE")
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
        raise DatasetError("the store is a cache that nodes write into; it cannot be the output of a node")

    def _exists(self) -> bool:
        return True

    def _release(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath)}
