"""Temporary folders that go when their process ends, and those of killed processes with them."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

from filelock import FileLock

from anmi.files import is_held

_LOCK_FILE: Final = ".lock"
_lock = threading.Lock()
_rooms: dict[tuple[str, int], tuple[tempfile.TemporaryDirectory[str], FileLock]] = {}


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
            # Kept and never released, so that the lock lives as long as the process.
            lock = FileLock(Path(made.name) / _LOCK_FILE, thread_local=False)
            lock.acquire(timeout=0)
            _rooms[key] = made, lock
        return Path(_rooms[key][0].name)


def _sweep(parent: Path, prefix: str) -> None:
    for lock in parent.glob(f"{prefix}*/{_LOCK_FILE}"):
        # Those of other users, or gone in between, cannot be told.
        if is_held(lock) is False:
            shutil.rmtree(lock.parent, ignore_errors=True)
