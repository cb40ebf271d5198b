"""Temporary folders: one per process, gone with it, however it ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anmi import files

_MAKE = """
import os, signal, sys
from anmi.files import room
place = room("anmi-test-room-")
(place / "big").write_text("x")
print(place, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "waits":
    sys.stdin.read()
"""


def start(how: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _MAKE, how],
        env={"TMPDIR": str(folder), "PATH": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_room_ends_with_its_process_and_that_of_a_killed_one_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = start("waits", tmp_path)
    assert waits.stdout is not None
    living = Path(waits.stdout.readline().strip())
    killed, ends = (Path(start(how, tmp_path).communicate()[0].strip()) for how in ("killed", "ends"))
    assert killed != ends != living
    assert not ends.exists()
    # The one that ended came after the killed one, and has swept.
    assert not killed.exists()
    assert (living / "big").read_text() == "x"
    waits.communicate()
    assert not living.exists()


def test_files_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path))
    without_lock, other = tmp_path / "anmi-mine-1", tmp_path / "other-2"
    for folder in (without_lock, other):
        folder.mkdir()
    (other / ".lock").touch()
    place = files.room("anmi-mine-")
    assert place.parent == tmp_path
    assert without_lock.is_dir() and other.is_dir()
