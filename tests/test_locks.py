"""A lock that one process holds, and which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from anmi.errors import AnmiError
from anmi.locks import Lock, has_ended, is_held, process

HOLDER = """
import os, sys, time
from pathlib import Path
from anmi.locks import Lock
lock = Lock(Path(sys.argv[1]))
assert lock.take({"pid": os.getpid(), "host": "here"}) is None
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(60)
print(os.getpid(), flush=True)
time.sleep(60)
"""


def start(path: Path, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), *more], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    return process


@pytest.mark.parametrize("more", [(), ("fork",)], ids=["alone", "with a child that lives on"])
def test_it_ends_with_its_holder(tmp_path: Path, more: tuple[str, ...]) -> None:
    path = tmp_path / "new" / "retrain.lock"
    holder = start(path, *more)
    mark = process(holder.pid)
    try:
        assert Lock(path).take({}) == {"pid": holder.pid, "host": "here"}
        assert not has_ended(mark)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(timeout=10)
        mine, until = Lock(path), time.monotonic() + 20
        # A child that was forked this very moment has the file until it gets its first turn.
        while mine.take({"pid": 1}) is not None and time.monotonic() < until:
            time.sleep(0.05)
        assert has_ended(mark)
        assert Lock(path).take({}) == {"pid": 1}, "of who held it before nothing is left"
        mine.release()
        mine.release()
        assert mine.take({}) is None
        mine.release()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(holder.pid, signal.SIGKILL)
        holder.wait(timeout=10)


def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = process(child.pid)
    assert not has_ended(mark)
    child.kill()
    until = time.monotonic() + 10
    while not has_ended(mark) and time.monotonic() < until:
        time.sleep(0.01)
    assert has_ended(mark)
    child.communicate()


@pytest.mark.parametrize("change", [{"boot": "other"}, {"host": "other"}, {"space": "other"}, {"pid": None}])
def test_of_other_machines_nothing_is_said(change: dict[str, Any]) -> None:
    other = {name: value for name, value in {**process(), "started": "1", **change}.items() if value is not None}
    assert not has_ended(other)


def test_the_number_given_again_is_another_process() -> None:
    assert has_ended(process() | {"started": "1"})


def test_whether_a_file_is_locked_can_be_asked(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert is_held(path) is None
    lock = Lock(path)
    assert lock.take() is None
    assert is_held(path) is True
    lock.release()
    assert is_held(path) is False
    lock.take()
    lock.release(remove=True)
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AnmiError, match="ANMI_STORE"):
        Lock(tmp_path / "file" / "retrain.lock").take({})
