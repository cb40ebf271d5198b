"""Files are written whole or not at all; temporary folders go when the process ends."""

from __future__ import annotations

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

from anmi.errors import AnmiError
from anmi.fingerprint import files_in, hash_file, hash_named

# What the system and the libraries say of a full disk (NumPy counts what it wrote).
_FULL: Final = re.compile(
    "no space left|disk is full|quota exceeded|requested and .+ written", re.IGNORECASE
)


def read_json(path: Path) -> Any:
    """Return what a file of JSON holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, an entry a line."""
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def plain(value: Any) -> Any:
    """Turn NumPy values, pydantic models and paths into what JSON knows; NaN becomes null.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"a": np.float32(0.5), "b": [float("nan"), np.int64(2)], "c": np.arange(2)})
    {'a': 0.5, 'b': [None, 2], 'c': [0, 1]}
    """
    return from_json(to_json(value, inf_nan_mode="null", fallback=lambda array: array.tolist()))


def is_held(path: Path) -> bool:
    """Tell whether some process, this one included, holds the lock on a file that may be absent."""
    if not path.exists():
        return False
    try:
        FileLock(path).acquire(timeout=0).lock.release()
    except Timeout:
        return True
    return False


@contextmanager
def aside(target: Path) -> Iterator[Path]:
    """Give a path beside ``target`` to write to, which becomes ``target`` when the block succeeds.

    The temporary name starts with a dot and does not end like an artifact, so what a killed process
    leaves behind is never taken for a version.

    Raises
    ------
    AnmiError
        The disk is full.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with aside(folder / "a.txt") as path:
    ...     _ = path.write_text("done")
    >>> sorted(p.name for p in folder.iterdir())
    ['a.txt']
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary_folder = _hidden_folder(target.parent, target.name)
    try:
        yield temporary_folder / target.name
        if target.is_dir():
            # A full folder cannot be renamed over: move the old one out first.
            target.rename(temporary_folder / f"{target.name}.old")
        (temporary_folder / target.name).replace(target)
    except Exception as error:
        if isinstance(error, AnmiError) or not _FULL.search(str(error)):
            raise
        raise AnmiError(
            f"{target} cannot be written, since its disk is full: free some space (`kedro anmi"
            " prune`), or choose another disk by ANMI_DATA_ROOT, ANMI_STORE or TMPDIR"
        ) from error
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)


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
    """Remove the files and folders that exist; each is moved aside first, so none is seen half.

    ``beside`` is a folder on the same disk, which holds them meanwhile.
    """
    temporary_folder = _hidden_folder(beside, "pruned")
    try:
        for number, path in enumerate(paths):
            with suppress(FileNotFoundError):
                path.rename(temporary_folder / str(number))
    finally:
        shutil.rmtree(temporary_folder)


def _hidden_folder(folder: Path, name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".tmp", dir=folder))


def measured(path: Path, known_hashes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return number and bytes of an artifact's files, a hash of it and one of its weights.

    ``known_hashes`` holds hashes by file name; those files are not read. The others take a second
    per gigabyte.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("done")
    >>> measured(folder)["files"], measured(folder)["bytes"]
    (1, 4)
    """
    files = files_in(path) if path.is_dir() else [path]
    hashes: dict[str, str] = {}
    for file in files:
        file_name = file.relative_to(path).as_posix()
        hashes[file_name] = (known_hashes or {}).get(file_name) or hash_file(file)
    size = sum(file.stat().st_size for file in files)
    facts = {"files": len(files), "bytes": size, "digest": hash_named(hashes.items())}
    weights = [item for item in hashes.items() if item[0].endswith(".safetensors")]
    if weights:
        facts["weights"] = hash_named(weights)
    return facts


def room(prefix: str) -> Path:
    """Return this process's temporary folder of that prefix; it goes when the process ends.

    Examples
    --------
    >>> room("anmi-doctest-") == room("anmi-doctest-")
    True
    """
    return Path(_temporary(prefix, os.getpid()).name)


@cache
def _temporary(prefix: str, process: int) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
