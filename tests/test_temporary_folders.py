"""Temporary folders: one per process, gone with it, however it ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_a_room_ends_with_its_process_and_that_of_a_killed_one_with_the_next(tmp_path: Path) -> None:
    (others := tmp_path / "anmi-test-room-of-mine").mkdir()
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
    assert others.is_dir(), "it holds no lock of ours"
