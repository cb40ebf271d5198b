"""Which process makes something, and whether it still lives."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

State = Literal["alive", "dead", "unknown"]
_OWNED: Final = re.compile(r"\.([0-9a-f]{8})-(\d+)\.\w+\.tmp$")


def this_process() -> dict[str, Any]:
    """Return what tells this process from all others: host, boot, space of process ids, id and start.

    A process id alone is given to another process after a while; the start time is not.
    """
    return {**_machine(), "pid": os.getpid(), "started": _started(os.getpid())}


def state(process: Mapping[str, Any]) -> State:
    """Tell whether a process lives, as far as it can be seen from here.

    Parameters
    ----------
    process
        From :func:`this_process`.

    Examples
    --------
    >>> state(this_process())
    'alive'
    >>> state(this_process() | {"started": "1"})
    'dead'
    >>> state(this_process() | {"host": "another"})
    'unknown'
    """
    here = _machine()
    if process.get("host") != here["host"] or "pid" not in process:
        return "unknown"
    if process.get("boot") != here["boot"]:
        return "dead"
    if process.get("space") != here["space"]:
        return "unknown"
    if not _is_there(int(process["pid"])):
        return "dead"
    return "alive" if process.get("started") == _started(int(process["pid"])) else "dead"


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


class Held:
    """A file that is locked while this process lives; others can see from the lock that it does.

    A lock of this kind belongs to the process alone: its children do not inherit it, and it ends with the process,
    however that ends.

    Parameters
    ----------
    path
        The file; made, and removed in the end. None for a place that has no locks.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._file = path, -1
        if path is None:
            return
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # A file system without locks; the process id has to do.
            self.close()

    def close(self) -> None:
        """Let go."""
        if self._file >= 0 and self._path is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def lock_state(path: Path) -> State:
    """Tell from a file of :class:`Held` whether the process that made it lives; not to be asked by that process."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return "unknown"
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "alive"
    except OSError:
        return "unknown"
    else:
        return "dead"
    finally:
        os.close(file)


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
    if _text(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["Z"]:
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
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
