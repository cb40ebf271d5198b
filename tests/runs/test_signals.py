"""Ctrl-C and SIGTERM while another thread opens the tracking run."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from anmi.runs.signals import PutOff


class Stopped(BaseException):
    pass


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(request.param, stop)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_waits_for_the_other_thread_and_then_stops(number: int) -> None:
    opening: Future[None] = Future()
    held = PutOff(opening)
    signal.raise_signal(number)
    threading.Timer(0.3, opening.set_result, [None]).start()
    start = time.monotonic()
    with pytest.raises(Stopped):
        time.sleep(5)
    assert 0.2 < time.monotonic() - start < 4
    held.end()


def test_who_waits_for_the_other_thread_is_stopped_when_it_is_done(number: int) -> None:
    opening: Future[None] = Future()
    held = PutOff(opening)
    threading.Timer(0.1, signal.pthread_kill, [threading.get_ident(), number]).start()
    threading.Timer(0.3, opening.set_result, [None]).start()
    with pytest.raises(Stopped):
        try:
            opening.result(5)
        finally:
            held.end()
            time.sleep(1)


def test_the_second_signal_stops_at_once_and_only_once(number: int) -> None:
    opening: Future[None] = Future()
    PutOff(opening)
    signal.raise_signal(number)
    with pytest.raises(Stopped):
        signal.raise_signal(number)
    opening.set_result(None)
    time.sleep(0.1)


def test_a_signal_stops_at_once_where_nothing_is_done_elsewhere(number: int) -> None:
    opening: Future[None] = Future()
    held = PutOff(opening)
    opening.set_result(None)
    with pytest.raises(Stopped):
        signal.raise_signal(number)
    held.end()


def test_what_is_ignored_stays_ignored_and_handlers_come_back() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        held = PutOff(Future())
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        held.end()
    finally:
        signal.signal(signal.SIGINT, before)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    PutOff(Future()).end()
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_outside_the_main_thread_nothing_is_put_off() -> None:
    before = signal.getsignal(signal.SIGINT)
    held: list[PutOff] = []
    thread = threading.Thread(target=lambda: held.append(PutOff(Future())))
    thread.start()
    thread.join()
    assert len(held) == 1
    assert signal.getsignal(signal.SIGINT) is before
