"""A folder, local or remote: what is in it, small files of it, and removing so that nothing is seen half."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anmi import buckets, files
from anmi.datasets import remote


@dataclass(frozen=True)
class File:
    """A file under a root.

    Attributes
    ----------
    name
        Its path from the root.
    bytes
        Its size.
    changed, used
        When it was last written, and when last read or written, in seconds since 1970; 0 where the system does not say.
    """

    name: str
    bytes: int
    changed: float
    used: float


class Place:
    """A folder, by a path or a URL.

    Parameters
    ----------
    root
        The folder.
    """

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.is_local = "://" not in root
        self._fs: Any = None if self.is_local else buckets.file_system(root)

    def read(self, name: str) -> str | None:
        """Return what a small file holds; None where it is not there."""
        if not self.is_local:
            return remote.read_text(f"{self.root}/{name}")
        path = Path(self.root) / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def write(self, name: str, text: str) -> str:
        """Write a small file, whole or not at all, and return where it lies."""
        place = f"{self.root}/{name}"
        if not self.is_local:
            remote.write_text(place, text)
        else:
            with files.disk_errors(place), files.aside(Path(place)) as path:
                path.write_text(text, encoding="utf-8")
        return place

    def files(self, folder: str = "") -> Iterator[File]:
        """Yield all files, those of a folder or all, hidden ones too, and empty folders that are somebody's leftovers.

        Their names start at the root in any case.
        """
        if self.is_local:
            root = Path(self.root)
            for path in (root / folder).rglob("*"):
                try:
                    state = path.lstat()
                except OSError:
                    # Another process is at work here.
                    continue
                if not path.is_dir() or path.name.endswith(".tmp"):
                    size = 0 if path.is_dir() else state.st_size
                    yield File(
                        path.relative_to(root).as_posix(), size, state.st_mtime, max(state.st_mtime, state.st_atime)
                    )
            return
        with buckets.in_one_sentence(self.root):
            self._fs.invalidate_cache()
            start = str(self._fs._strip_protocol(self.root)).strip("/")
            place = f"{self.root}/{folder}".rstrip("/")
            entries = self._fs.find(place, detail=True) if self._fs.exists(place) else {}
            for path, entry in entries.items():
                yield File(path.strip("/").removeprefix(start).strip("/"), int(entry.get("size") or 0), 0.0, 0.0)

    def remove(self, *names: str) -> None:
        """Remove folders or files, by their paths from the root; without any, the whole place.

        What is being removed is never seen half: locally it is moved aside first, and of a folder in a bucket the mark
        that it is complete goes first.
        """
        if not self.is_local:
            with buckets.in_one_sentence(self.root):
                for name in names or ("",):
                    target = f"{self.root}/{name}".rstrip("/")
                    for mark in (path for path in self._fs.find(target) if path.endswith(f"/{remote.COMPLETE}")):
                        self._fs.rm_file(mark)
                    remote.remove(self._fs, target)
            return
        root = Path(self.root)
        parent = root if names else root.parent
        found = [root / name for name in names if (root / name).exists()] if names else [root] * root.exists()
        if not found:
            return
        with files.disk_errors(root):
            files.remove(*found, beside=parent)
            for path in found:
                _remove_empty(path.parent, root)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove folders in which nothing is left, up to the root."""
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
