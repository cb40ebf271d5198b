"""Uploads to places that only fsspec knows, such as a bucket, and downloads from there."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, Final

from anmi.buckets import COMPLETE, in_one_sentence
from anmi.errors import AnmiError
from anmi.store.room import room

# Files at a time. s3fs holds each in memory, up to four parts of 50 MiB of it and files up to twice a part, so that an
# upload takes some 800 MiB at worst and not 64 GiB.
_FILES: Final = 4
_PREFIX: Final = "anmi-downloads-"


def upload(files: Any, local: Path, target: str, place: str) -> None:
    """Copy a file or a folder to ``target``; a folder is marked as complete when all of it is there.

    Parameters
    ----------
    files
        The file system.
    local
        What to copy. Empty folders in it are not kept: buckets know none.
    target
        Where to, in the words of the file system.
    place
        The same as people read it, for errors.
    """
    with in_one_sentence(place):
        if not local.is_dir():
            # S3 shows a file once all its bytes are there, one that is sent in parts as well.
            files.put_file(str(local), target)
            return
        remove(files, target)
        sources = sorted(path for path in local.rglob("*") if path.is_file())
        targets = [f"{target}/{path.relative_to(local).as_posix()}" for path in sources]
        if sources:
            files.put([str(path) for path in sources], targets, batch_size=_FILES)
        files.pipe_file(f"{target}/{COMPLETE}", b"")


def download(files: Any, source: str, local: Path, place: str) -> None:
    """Copy a file or a folder to ``local``, which does not exist yet.

    Raises
    ------
    AnmiError
        The place cannot be read, or the name of something in it would lead out of ``local``.
    """
    with in_one_sentence(place):
        if not files.isdir(source):
            files.get_file(source, str(local))
            return
        local.mkdir()
        # A file system may or may not begin its paths with a slash.
        inside = {path: path.strip("/").removeprefix(source.strip("/")).strip("/") for path in files.find(source)}
        if any(".." in PurePosixPath(name).parts for name in inside.values()):
            raise AnmiError(f"{place} holds a name with .. in it, which would lead out of its folder: remove it")
        inside = {path: name for path, name in inside.items() if name and name != COMPLETE}
        for name in inside.values():
            (local / name).parent.mkdir(parents=True, exist_ok=True)
        if inside:
            files.get(list(inside), [str(local / name) for name in inside.values()], batch_size=_FILES)


def remove(files: Any, target: str) -> None:
    """Remove a folder, the mark that it is complete first: what is left of it after a crash is never loaded."""
    if files.exists(f"{target}/{COMPLETE}"):
        files.rm_file(f"{target}/{COMPLETE}")
    if files.exists(target):
        files.rm(target, recursive=True)


def local_room() -> Path:
    """Return this process's folder for what it downloads and uploads; it goes when the process ends."""
    return room(_PREFIX)
