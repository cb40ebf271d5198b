"""Locks on files that end with their process, however that ends, and which process is which."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from anmi.errors import AnmiError

State = Literal["alive", "dead", "unknown"]
_OWNED: Final = re.compile(r"\.([0-9a-f]{8})-(\d+)\.\w+\.tmp$")
_LONGEST: Final = 4096
_HELD: Final[set[int]] = set()


def _let_go() -> None:
    # A lock belongs to all processes that have the file open; what a killed process has forked must not keep it.
    for file in _HELD:
        os.close(file)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)


class Lock:
    """A lock on a file that one process holds, and that says who does.

    Parameters
    ----------
    path
        The file; made when absent, with its folder. It stays when the lock is released.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self, holder: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
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
            file = _opened(self._path)
        except OSError as error:
            raise AnmiError(f"{self._path}: {error.strerror}, so nothing can be locked: set ANMI_STORE") from error
        try:
            if not _taken(file):
                found = _read(file)
                os.close(file)
                return found
        except OSError as error:
            os.close(file)
            raise AnmiError(
                f"{self._path}: its file system has no locks ({error.strerror}): put ANMI_STORE on a local disk"
            ) from error
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(dict(holder or {})).encode(), 0)
        self._file = file
        _HELD.add(file)
        return None

    def release(self, *, remove: bool = False) -> None:
        """Give the lock back, and remove its file on demand; without effect where it is not held."""
        if self._file is not None:
            if remove:
                self._path.unlink(missing_ok=True)
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
        file = _opened(path)
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


def is_held(path: Path) -> bool | None:
    """Tell whether some process has a file locked; None where it is not there or its file system has no locks."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return not _taken(file)
    except OSError:
        return None
    finally:
        os.close(file)


class Users:
    """A shared lock that each user of a folder holds, so that its files are only replaced while nobody reads them.

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


def _read(file: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(file, _LONGEST, 0))
    except ValueError:
        # It was taken this very moment, and who holds it is not written yet.
        return {}
    return found if isinstance(found, dict) else {}


def process(pid: int | None = None) -> dict[str, Any]:
    """Return what tells a process of this machine, by default this one, from all others of all machines.

    That are host, boot, space of process ids, id and start: an id alone is given to another process after a while.
    """
    number = os.getpid() if pid is None else pid
    return {**_machine(), "pid": number, "started": _started(number)}


def state(found: Mapping[str, Any]) -> State:
    """Tell whether a process lives, as far as it can be seen from here.

    Parameters
    ----------
    found
        From :func:`process`.

    Examples
    --------
    >>> state(process())
    'alive'
    >>> state(process() | {"started": "1"})
    'dead'
    >>> state(process() | {"host": "another"})
    'unknown'
    """
    here = _machine()
    if found.get("host") != here["host"] or "pid" not in found:
        return "unknown"
    if found.get("boot") != here["boot"]:
        return "dead"
    if found.get("space") != here["space"]:
        return "unknown"
    if not _is_there(int(found["pid"])):
        return "dead"
    return "alive" if found.get("started") == _started(int(found["pid"])) else "dead"


def has_ended(found: Mapping[str, Any]) -> bool:
    """Tell whether a process of this machine is known to have ended since it was started.

    Of another boot nothing is said, as that may be another machine of the same name.
    """
    return found.get("boot") == _machine()["boot"] and state(found) == "dead"


def owner() -> str:
    """Return the part of a temporary name that says whose it is."""
    return f"{_origin()}-{os.getpid()}"


def owner_state(name: str) -> State:
    """Tell from the name of a leftover whether the process that made it lives.

    Examples
    --------
    >>> owner_state(f".table.{owner()}.x1.tmp")
    'alive'
    >>> owner_state(".table.x1.tmp")
    'unknown'
    """
    found = _OWNED.search(name)
    if found is None or found[1] != _origin():
        return "unknown"
    return "alive" if _is_there(int(found[2])) else "dead"


@lru_cache
def _machine() -> dict[str, str]:
    return {
        "host": socket.gethostname(),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        # Containers of one machine count their processes apart.
        "space": str(Path("/proc/self/ns/pid").readlink()) if Path("/proc/self/ns/pid").exists() else "",
    }


@lru_cache
def _origin() -> str:
    return hashlib.blake2b("\x1f".join(_machine().values()).encode(), digest_size=4).hexdigest()


def _started(pid: int) -> str:
    """Return when a process started, in ticks since the boot; empty where the system does not say."""
    # The name of the program, in brackets, may hold spaces.
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _is_there(pid: int) -> bool:
    # A killed child that nobody waited for is no process any more.
    if _text(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] in (["Z"], ["X"]):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
