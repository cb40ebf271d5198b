"""Connecting this process to Ray: to one that it starts on this machine for itself alone, or to a cluster."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from anmi.engine.local import environment
from anmi.engine.params import RayParams
from anmi.errors import AnmiError

_INSTALL: Final = 'engine `ray` needs the package ray: pip install "anmi[ray]", or set engine to local'
# A machine that does not answer by then is not there; Ray itself would ask for minutes.
_CONNECT_SECONDS: Final = 10
# Ray's sockets lie below, and the system allows no more than 107 characters for the path of one.
_LONGEST: Final = 30
# One for all sessions of this process, since Ray reads it once.
_TOKEN: Final = secrets.token_hex(32)


def library() -> Any:
    """Import Ray.

    Raises
    ------
    AnmiError
        It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise AnmiError(_INSTALL) from error
    return ray


class Session:
    """A connection to Ray, ended by :meth:`close`.

    Where this process is connected already, that connection is used, and left as it is.

    Parameters
    ----------
    params
        Without an address, Ray is started on this machine for this process: it listens on the loopback interface only,
        asks for a token that nobody else has, reports nothing to its makers, and ends with this process.
    workers
        Processes that it is to have on this machine.

    Raises
    ------
    AnmiError
        Ray is not installed, does not start, or cannot be reached.
    """

    # Of all sessions of this process: whether one of them started the Ray that it is connected to.
    _started: ClassVar[bool] = False

    def __init__(self, params: RayParams, workers: int) -> None:
        self._ray = library()
        self._address = None if params.address in (None, "", "local") else params.address
        self._workers = workers
        self._folder: Path | None = None
        self._ended: threading.Event | None = None
        self._connected = False
        self.open()

    def open(self) -> None:
        """Connect, unless that was done and holds."""
        if self._ray.is_initialized():
            return
        self._forget()
        Session._started = False
        if self._address is None:
            self._start()
            Session._started = True
        else:
            _connect(self._ray, self._address)
        self._connected = True

    @property
    def holds(self) -> bool:
        """True while there is a connection."""
        return bool(self._ray.is_initialized())

    @property
    def alone(self) -> bool:
        """True where Ray serves this process only, on this machine."""
        return Session._started

    def close(self) -> None:
        """End what :meth:`open` began: Ray itself where it was started for this process, else the connection."""
        if self._connected and self._ray.is_initialized():
            self._ray.shutdown()
            Session._started = False
        self._forget()

    def _forget(self) -> None:
        if self._ended is not None:
            self._ended.set()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._connected, self._folder, self._ended = False, None, None

    def _start(self) -> None:
        root = tempfile.gettempdir()
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir=root if len(root) <= _LONGEST else "/tmp"))
        self._ended = threading.Event()
        logging.getLogger("ray").setLevel(logging.ERROR)

        def start() -> None:
            with _for_this_process_alone():
                self._ray.init(
                    address="local",
                    num_cpus=self._workers,
                    include_dashboard=False,
                    configure_logging=False,
                    log_to_driver=False,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=str(self._folder),
                )

        try:
            _in_lasting_thread(start, self._ended)
        except Exception as error:
            self._forget()
            raise AnmiError(f"Ray could not be started on this machine ({told(error)}); see engine.ray") from error


def told(error: BaseException) -> str:
    r"""Return an error's kind and the first line of what it says.

    Examples
    --------
    >>> told(OSError("no room\nat all"))
    'OSError: no room'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _connect(ray: Any, address: str) -> None:
    try:
        if address != "auto":
            place = urlsplit(address if "://" in address else f"//{address}")
            if place.hostname and place.port:
                socket.create_connection((place.hostname, place.port), timeout=_CONNECT_SECONDS).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise AnmiError(
            f"no Ray cluster can be reached at engine.ray.address {address} ({told(error)}): start one with "
            "`ray start --head`, or leave the address out to work on this machine"
        ) from error


def _in_lasting_thread(start: Callable[[], None], ended: threading.Event) -> None:
    """Start Ray in a thread that lives until it is told to end.

    The processes that Ray starts on Linux are killed when the thread that started them ends, which for a thread of a
    pool is long before this process does.
    """
    begun = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            start()
        except BaseException as error:
            errors.append(error)
        begun.set()
        ended.wait()

    threading.Thread(target=run, name="ray", daemon=True).start()
    begun.wait()
    if errors:
        raise errors[0]


@contextmanager
def _for_this_process_alone() -> Iterator[None]:
    """Let the Ray that is started meanwhile listen on loopback, ask for a token, and tell nobody."""
    values = {
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's name for it is of its history: nothing listens to other machines, as by default on a desktop.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Workers start when they are asked for; those that Ray starts beforehand lack our environment and stay idle.
        "RAY_prestart_worker_first_driver": "0",
    }
    with ExitStack() as stack:
        if "RAY_AUTH_MODE" not in os.environ:
            # Ray then asks for a token, and sets the variable. Without one of ours it writes one into the home folder.
            values["RAY_AUTH_TOKEN"] = _TOKEN
            stack.callback(os.environ.pop, "RAY_AUTH_MODE", None)
        stack.enter_context(environment(values))
        try:
            from ray._private import ray_constants
        except ImportError:
            ray_constants = None
        # What the variable says was read when Ray was imported, which others may have done before.
        if hasattr(ray_constants, "ENABLE_RAY_CLUSTER"):
            stack.callback(setattr, ray_constants, "ENABLE_RAY_CLUSTER", ray_constants.ENABLE_RAY_CLUSTER)
            ray_constants.ENABLE_RAY_CLUSTER = False
        yield
