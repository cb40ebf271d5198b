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
    path
        The lock file; made when absent. It is locked, never written.

    Raises
    ------
    OSError
        The file cannot be made, or its file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # Waits while somebody is replacing the database.
            fcntl.flock(self._file, fcntl.LOCK_SH)
        except OSError:
            os.close(self._file)
            raise

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep others out while the context lasts; False, and nobody is kept out, where others are in already."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        try:
            yield alone
        finally:
            # Also after a failure, which gives up the shared lock.
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def close(self) -> None:
        """Leave."""
        os.close(self._file)
