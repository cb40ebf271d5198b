"""Files written whole or not at all, a sentence where a disk takes no more, and temporary folders that go."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from pydantic_core import from_json, to_json

from anmi.errors import AnmiError, causes
from anmi.fingerprint import files_in, hash_file, hash_named

_FREE: Final = "free some (`kedro anmi prune`)"
# The system's numbers, what libraries say that keep the number to themselves (NumPy counts what it
# wrote), and why.
_DISK: Final = (
    (
        {errno.ENOSPC},
        (
            "no space left on device|database or disk is full|items? requested but|requested and .+"
            " written"
        ),
        f"there is no space left on its disk: {_FREE}",
    ),
    ({errno.EDQUOT}, "quota exceeded", f"the quota of its disk is used up: {_FREE}"),
    (
        {errno.EROFS},
        "read-?only (file system|database)",
        "its file system is read-only: make it writable",
    ),
    (
        {errno.EACCES, errno.EPERM},
        "permission denied|access ?denied",
        "this user may not write there: allow it to",
    ),
    (
        {errno.EFBIG},
        "file too large",
        "files may not become so large there: raise the limit (`ulimit -f`)",
    ),
)


def read_json(path: Path) -> Any:
    """Return what a file of JSON holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, an entry a line."""
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def plain(value: Any) -> Any:
    """Turn NumPy values, models of pydantic, paths and NaN into what JSON knows (NaN and infinities become null).

    Examples
    --------
    >>> import numpy as np
    >>> plain({"a": np.float32(0.5), "b": [float("nan"), np.int64(2)], "c": np.arange(2)})
    {'a': 0.5, 'b': [None, 2], 'c': [0, 1]}
    """
    return from_json(to_json(value, inf_nan_mode="null", fallback=lambda array: array.tolist()))


def is_held(path: Path) -> bool:
    """Tell whether some process, this one included, holds the lock on a file; False where it is not there."""
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


@contextmanager
def aside(target: Path) -> Iterator[Path]:
    """Give a path beside ``target`` to write to; rename it to ``target`` when the block ends without an error.

    The temporary name starts with a dot and does not end like an artifact, so what a killed process
    leaves behind is never taken for a version.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with aside(folder / "a.txt") as path:
    ...     _ = path.write_text("done")
    >>> sorted(p.name for p in folder.iterdir())
    ['a.txt']
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    room = _room(target.parent, target.name)
    try:
        yield room / target.name
        if target.is_dir():
            # A full folder cannot be renamed over: move the old one out first.
            target.rename(room / f"{target.name}.old")
        (room / target.name).replace(target)
    finally:
        shutil.rmtree(room, ignore_errors=True)


@dataclass(frozen=True)
class Linked:
    """A folder that is saved once more, as hard links where the disk has them."""

    folder: Path

    def save(self, path: Path) -> None:
        """Link the files into a folder, or copy them."""
        shutil.copytree(self.folder, path, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def remove(*paths: Path, beside: Path) -> None:
    """Remove files and folders, those that are there, so that none is ever seen half: they are moved aside first.

    ``beside`` is a folder on the same disk, for the time it takes.
    """
    room = _room(beside, "pruned")
    try:
        for number, path in enumerate(paths):
            with suppress(FileNotFoundError):
                path.rename(room / str(number))
    finally:
        shutil.rmtree(room)


def _room(folder: Path, name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".tmp", dir=folder))


def disk_error(error: BaseException, place: object, setting: str) -> AnmiError | None:
    """Return the sentence for what could not be written because of its disk; None where that is not the reason.

    What the error stems from is looked at as well; ``setting`` is the environment variable that
    chooses the place.

    Examples
    --------
    >>> print(disk_error(OSError(28, "No space left on device"), "data/x", "ANMI_DATA_ROOT"))
    data/x could not be written, since there is no space left on its disk: free some (`kedro anmi \
prune`), or set ANMI_DATA_ROOT to another place
    >>> disk_error(ValueError("something else"), "data/x", "ANMI_DATA_ROOT")
    """
    for found in causes(error):
        if isinstance(found, AnmiError):
            return None
        code, text = getattr(found, "errno", None), str(found).lower()
        for codes, said, why in _DISK:
            if code in codes or re.search(said, text):
                return AnmiError(
                    f"{place} could not be written, since {why}, or set {setting} to another place"
                )
    return None


def unwritable(error: OSError) -> AnmiError | None:
    """Return the sentence for an error of the system that nobody closer to it has told; None for other errors."""
    place = error.filename
    if error.errno in (errno.EACCES, errno.EPERM) and (
        place is None or not os.access(place, os.R_OK)
    ):
        # Perhaps it was only to be read.
        parent = None if place is None else Path(os.fsdecode(place)).parent
        if parent is None or Path(os.fsdecode(place)).exists() or not os.access(parent, os.X_OK):
            return None
    if not any(error.errno in codes for codes, *_ in _DISK):
        return None
    return disk_error(error, place or "a temporary file", "TMPDIR, ANMI_STORE or ANMI_DATA_ROOT")


@contextmanager
def disk_errors(place: object, setting: str = "ANMI_DATA_ROOT") -> Iterator[None]:
    """Raise an AnmiError that names the place where its disk is full or cannot be written to."""
    try:
        yield
    except Exception as error:
        if told := disk_error(error, place, setting):
            raise told from error
        raise


def measured(path: Path, known: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return number and bytes of the files of an artifact, and hashes: of all of it, and of its weights.

    ``known`` holds hashes by name, so that those files are not read; the others take a second per
    gigabyte.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("done")
    >>> measured(folder)["files"], measured(folder)["bytes"]
    (1, 4)
    """
    files = files_in(path) if path.is_dir() else [path]
    found = {file.relative_to(path).as_posix(): file for file in files}
    hashes = {name: (known or {}).get(name) or hash_file(file) for name, file in found.items()}
    size = sum(file.stat().st_size for file in files)
    facts = {"files": len(files), "bytes": size, "digest": hash_named(hashes.items())}
    if weights := [
        (name, found) for name, found in hashes.items() if name.endswith(".safetensors")
    ]:
        facts["weights"] = hash_named(weights)
    return facts


def room(prefix: str) -> Path:
    """Return this process's folder of that prefix in the folder for temporary files; it goes when the process ends.

    Examples
    --------
    >>> room("anmi-doctest-") == room("anmi-doctest-")
    True
    """
    return Path(_temporary(prefix, os.getpid()).name)


@cache
def _temporary(prefix: str, process: int) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
