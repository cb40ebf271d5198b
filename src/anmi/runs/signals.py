"""Ctrl-C and SIGTERM, put off while two threads import."""

from __future__ import annotations

import logging
import signal
import threading
from concurrent.futures import Future
from types import FrameType
from typing import Any, Final

log = logging.getLogger(__name__)

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


class PutOff:
    """Hold back what stops a process until a future is done; a second signal stops it at once.

    A signal is handled between any two steps of the main thread. Where it falls into an import, Python may lose it, or
    leave its import lock held for good, and another thread that imports then waits for ever.

    Parameters
    ----------
    until
        What another thread does. Outside the main thread, and for signals that are ignored, nothing is put off.

    Examples
    --------
    >>> opening: Future[None] = Future()
    >>> held = PutOff(opening)
    >>> opening.set_result(None)
    >>> held.end()
    """

    def __init__(self, until: Future[Any]) -> None:
        self._until = until
        self._before: dict[int, Any] = {}
        self._pending: int | None = None
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.getsignal(number) for number in _STOPPING}
            self._before = {number: handler for number, handler in before.items() if callable(handler)}
        for number in self._before:
            signal.signal(number, self._hold)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._pending is not None or self._until.done():
            self._pending = None
            before = self._before[number]
            self.end()
            before(number, frame)
        else:
            self._pending = number
            log.warning("Stopping as soon as the tracking store has answered; once more stops at once.")
            self._until.add_done_callback(self._send)

    def _send(self, _: Future[Any]) -> None:
        if self._pending is not None:
            signal.pthread_kill(threading.main_thread().ident or 0, self._pending)

    def end(self) -> None:
        """Give the signals back to whoever had them; one that was held back comes there."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, handler)
