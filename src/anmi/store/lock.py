"""Who has a store open, so that its file is only replaced while nobody else reads it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Users:
    """A shared lock that each user of a store holds; it ends with the process, however that ends.

    LMDB has a table of readers, but a process that has not read yet is not in it.

    Parameters
    ----------
    folder
        Where the lock files are; made when absent. They are locked, never written.

    Raises
    ------
    OSError
        A file cannot be made, or its file system has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self._gate = folder / "upkeep.lock"
        self._file = _opened(folder / "users.lock")
        try:
            # Waits while somebody is replacing the database.
            fcntl.flock(self._file, fcntl.LOCK_SH)
        except OSError:
            os.close(self._file)
            raise

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep others out while the context lasts; False, and nobody is kept out, where others are in already."""
        # An attempt to be alone gives up the shared lock for a moment, also when it fails. Only whoever holds the gate
        # may attempt it, so that nobody else is alone in that moment.
        gate = _opened(self._gate)
        try:
            alone = _taken(gate) and self._sole()
            try:
                yield alone
            finally:
                fcntl.flock(self._file, fcntl.LOCK_SH)
        finally:
            os.close(gate)

    def _sole(self) -> bool:
        if _taken(self._file):
            return True
        fcntl.flock(self._file, fcntl.LOCK_SH)
        return False

    def close(self) -> None:
        """Leave."""
        os.close(self._file)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _taken(file: int) -> bool:
    """Lock a file for this process alone, if nobody else has it locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
