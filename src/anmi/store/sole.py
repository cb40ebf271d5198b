"""One process at a time: a lock on a file that ends with its process, however that ends, and says who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from anmi.errors import AnmiError

_HELD: Final[set[int]] = set()
_LONGEST: Final = 4096


def _let_go() -> None:
    # A lock belongs to all processes that have the file open; what a killed process has forked must not keep it.
    for file in _HELD:
        os.close(file)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)


class SoleLock:
    """A lock that one process holds.

    Parameters
    ----------
    path
        The file; made when absent, with its folder. It stays when the lock is released.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self, holder: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take the lock at once or not at all.

        Parameters
        ----------
        holder
            What others are told of this process while it holds the lock.

        Returns
        -------
        dict or None
            None with the lock taken, else what is known of who holds it.

        Raises
        ------
        AnmiError
            The file cannot be made, or its file system has no locks.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise AnmiError(f"{self._path}: {error.strerror}, so nothing can be locked: set ANMI_STORE") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = _read(file)
            os.close(file)
            return found
        except OSError as error:
            os.close(file)
            raise AnmiError(
                f"{self._path}: its file system has no locks ({error.strerror}): put ANMI_STORE on a local disk"
            ) from error
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(dict(holder)).encode(), 0)
        self._file = file
        _HELD.add(file)
        return None

    def release(self) -> None:
        """Give the lock back; without effect where it is not held."""
        if self._file is not None:
            _HELD.discard(self._file)
            os.close(self._file)
            self._file = None


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes out while the context lasts, after waiting for the one that is in.

    Where nothing can be written, nothing is locked, and nothing can be made that another might make as well.

    Parameters
    ----------
    path
        The file that is locked; made when absent, in a folder that is there. It stays.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield
        return
    _HELD.add(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        _HELD.discard(file)
        os.close(file)


def _read(file: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(file, _LONGEST, 0))
    except ValueError:
        # It was taken this very moment, and who holds it is not written yet.
        return {}
    return found if isinstance(found, dict) else {}


def process_mark(pid: int | None = None) -> str:
    """Return what tells a process from all others of all machines; empty where the system does not say.

    Examples
    --------
    >>> has_ended(process_mark())
    False
    """
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink()
        number = os.getpid() if pid is None else pid
        return f"{kernel} {space} {number} {_start(number)}"
    except OSError:
        return ""


def has_ended(mark: str) -> bool:
    """Tell whether a process is known to have ended: only of one of this machine since it was started can that be said.

    Parameters
    ----------
    mark
        From :func:`process_mark`, of another process perhaps.
    """
    parts, own = mark.split(), process_mark().split()
    if len(parts) != 4 or parts[:2] != own[:2]:
        return False
    try:
        return _start(int(parts[2])) != parts[3]
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False


def _start(pid: int) -> str:
    """Return when a process was started, in ticks; a number is given again, together with this it is not."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The name before it may contain anything. A process that is dead and not yet asked for has ended as well.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def host() -> str:
    """Return the name of this machine."""
    return platform.node() or "unknown"
