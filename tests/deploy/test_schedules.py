"""cron: what is mailed, by exit code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def cron_line() -> list[str]:
    lines = (DEPLOY / "cron" / "anmi").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if re.match(r"[\d*]", line)]
    return line.split(maxsplit=6)


@pytest.mark.parametrize(
    ("code", "mailed"), [(0, False), (10, False), (1, True), (11, True), (137, True)]
)
def test_cron_mails_failures_only(code: int, mailed: bool, tmp_path: Path) -> None:
    *when, user, command = cron_line()
    assert (len(when), user) == (5, "anmi")
    assert "%" not in command, "cron takes it for the end of the line"
    home, log, settings = (tmp_path / name for name in ("opt", "retrain.log", "environment"))
    (home / ".venv" / "bin").mkdir(parents=True)
    # What the shell line does with a code is asked here; which code a retraining has is tested with
    # retraining.
    stand_in = home / ".venv" / "bin" / "kedro"
    stand_in.write_text(
        f'#!/bin/sh\necho "$SECRET $ANMI_DATA_ROOT $*"\nexit {code}\n', encoding="utf-8"
    )
    stand_in.chmod(0o755)
    settings.write_text("SECRET='a b$c'\n", encoding="utf-8")
    places = {
        "/opt/anmi": home,
        "/etc/anmi/environment": settings,
        "/var/log/anmi/retrain.log": log,
    }
    for place, path in places.items():
        command = command.replace(place, str(path))
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=20
    )
    assert bool(done.stdout) == mailed
    assert done.stderr == ""
    assert log.read_text() == "a b$c /var/lib/anmi/data run --pipelines retrain --env prod\n"
