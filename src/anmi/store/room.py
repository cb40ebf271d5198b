"""Temporary folders that go when their process ends, and those of killed processes with them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

_LOCK_FILE: Final = ".lock"
_lock = threading.Lock()
_rooms: dict[tuple[str, int], tempfile.TemporaryDirectory[str]] = {}


def room(prefix: str) -> Path:
    """Return this process's folder of that prefix in the folder for temporary files, made when first asked for.

    What killed processes left under the prefix is removed: a living one holds a lock.

    Examples
    --------
    >>> room("anmi-doctest-") == room("anmi-doctest-")
    True
    """
    key = (prefix, os.getpid())
    with _lock:
        if key not in _rooms:
            _sweep(Path(tempfile.gettempdir()), prefix)
            made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
            # Never closed, so that the lock lives as long as the process.
            fcntl.flock(os.open(Path(made.name) / _LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600), fcntl.LOCK_EX)
            _rooms[key] = made
        return Path(_rooms[key].name)


def _sweep(parent: Path, prefix: str) -> None:
    for lock in parent.glob(f"{prefix}*/{_LOCK_FILE}"):
        try:
            handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            # Of another user, or gone in between.
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(handle)
