"""systemd, cron and Databricks: the files are valid, and exit codes mean what they say."""

from __future__ import annotations

import configparser
import copy
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / name, encoding="utf-8")
    return parser


def cron_line() -> list[str]:
    lines = (DEPLOY / "cron" / "anmi").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if re.match(r"[\d*]", line)]
    return line.split(maxsplit=6)


def test_a_kept_champion_is_no_failure_and_a_second_retraining_is() -> None:
    from anmi.hooks.retraining import EXIT_CODES

    service = unit("anmi-retrain.service")["Service"]
    assert service["SuccessExitStatus"].split() == [str(EXIT_CODES["kept"])]
    assert service["Restart"] == "on-failure"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    for path in (DEPLOY / "systemd").glob("anmi-retrain.*"):
        text = path.read_text(encoding="utf-8").replace("/opt/anmi/.venv/bin/kedro", "/bin/true")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    units = [str(tmp_path / name) for name in ("anmi-retrain.service", "anmi-retrain.timer")]

    def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60)

    done = analyze("verify", "--man=no", *units)
    assert (done.returncode, done.stderr) == (0, "")
    exposure = analyze("security", "--offline=true", "--threshold=20", units[0])
    assert exposure.returncode == 0, exposure.stdout[-200:]
    assert analyze("calendar", unit("anmi-retrain.timer")["Timer"]["OnCalendar"]).returncode == 0


def test_all_run_the_same_command() -> None:
    command = "kedro run --pipelines retrain --env prod"
    assert unit("anmi-retrain.service")["Service"]["ExecStart"].endswith(command)
    assert command in cron_line()[-1]
    parameters = job()["tasks"][0]["python_wheel_task"]["parameters"]
    assert command.split()[1:] == parameters[parameters.index("run") :][:5]


@pytest.mark.parametrize(("code", "mailed"), [(0, False), (10, False), (1, True), (11, True), (137, True)])
def test_cron_mails_failures_only(code: int, mailed: bool, tmp_path: Path) -> None:
    *when, user, command = cron_line()
    assert (len(when), user) == (5, "anmi")
    assert "%" not in command, "cron takes it for the end of the line"
    home, log, settings = (tmp_path / name for name in ("opt", "retrain.log", "environment"))
    (home / ".venv" / "bin").mkdir(parents=True)
    # What the shell line does with a code is asked here; which code a retraining has is tested with retraining.
    stand_in = home / ".venv" / "bin" / "kedro"
    stand_in.write_text(f'#!/bin/sh\necho "$SECRET $ANMI_DATA_ROOT $*"\nexit {code}\n', encoding="utf-8")
    stand_in.chmod(0o755)
    settings.write_text("SECRET='a b$c'\n", encoding="utf-8")
    places = {"/opt/anmi": home, "/etc/anmi/environment": settings, "/var/log/anmi/retrain.log": log}
    for place, path in places.items():
        command = command.replace(place, str(path))
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=20)
    assert bool(done.stdout) == mailed
    assert done.stderr == ""
    assert log.read_text() == "a b$c /var/lib/anmi/data run --pipelines retrain --env prod\n"


def job() -> dict[str, Any]:
    resources = yaml.safe_load((DEPLOY / "databricks" / "job.yml").read_text(encoding="utf-8"))["resources"]
    return dict(resources["jobs"]["anmi_retrain"])


CHECK = """
import json, sys
from databricks.bundles.jobs import Job
value = json.load(sys.stdin)
assert Job.from_dict(value).as_dict() == value
"""


@pytest.mark.rare
def test_the_databricks_job_is_one(tool: Callable[[str], Path]) -> None:
    folder = tool("databricks-bundles==1.22.1")

    def refused(value: dict[str, Any]) -> str:
        done = subprocess.run(
            [sys.executable, "-c", CHECK], input=json.dumps(value), capture_output=True, text=True, check=False,
            timeout=60, env={"PYTHONPATH": str(folder)},
        )  # fmt: skip
        return done.stderr

    assert refused(job()) == ""
    wrong = copy.deepcopy(job())
    wrong["tasks"][0]["python_wheel_task"]["entrypoint"] = "x"
    assert "entrypoint" in refused(wrong), "the check does look"


def test_the_databricks_job_refers_to_what_is_there() -> None:
    bundle = yaml.safe_load((DEPLOY / "databricks" / "databricks.yml").read_text(encoding="utf-8"))
    assert all((DEPLOY / "databricks" / path).resolve().exists() for path in bundle["sync"]["paths"])
    text = (DEPLOY / "databricks" / "job.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) == bundle["variables"].keys()
    task = job()["tasks"][0]["python_wheel_task"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts[task["entry_point"]] == "anmi.__main__:job"


@pytest.mark.parametrize(("code", "ends"), [(0, None), (10, None), (11, 11)])
def test_a_job_ends_quietly_where_the_champion_was_kept(
    code: int, ends: int | None, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    from anmi.__main__ import job as run_job
    from anmi.cli import run

    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["anmi-job", "--conf-source", "conf", "run", "--env", "test"])
    # The run itself is left out; how its code comes out is what is asked.
    monkeypatch.setattr(run.kedro_run, "callback", lambda **_: None)
    monkeypatch.setattr(run, "exit_code", lambda: code)
    if ends is None:
        run_job()
        return
    with pytest.raises(SystemExit) as ended:
        run_job()
    assert ended.value.code == ends
