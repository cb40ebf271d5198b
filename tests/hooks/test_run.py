"""What a run leaves behind: record, log, tracking. Real MLflow on SQLite, real ``kedro run`` in a small project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.commands import Commands
from tests.hooks.selecting import KINDS, Selecting, write_selecting


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, database: Path, commands: Commands
) -> tuple[Selecting, str]:
    """A project after one run, and what that printed; shared, so tests only read it."""
    project = write_selecting(tmp_path_factory.mktemp("finished"), commands, database)
    code, said = project.do(f"run --params {project.options},options.rows=6,recipe=hard")
    assert code == 0, said
    return project, said


def test_the_record_tells_the_run(finished: tuple[Selecting, str]) -> None:
    project, _ = finished
    (told,) = project.records()
    version = told["run_id"]
    assert project.versions() == {name: [version] for name in sorted(KINDS)}
    assert told["saved"].keys() == {name.partition(".")[0] for name in KINDS}
    for saved in told["saved"].values():
        assert (saved["version"], saved["files"]) == (version, 1)
        assert saved["bytes"] and saved["digest"]
    assert told["loaded"] == {}, "it read only what it made"
    assert told["status"] == "finished" and told["start"] <= told["end"]
    runtime = told["runtime_parameters"]
    assert runtime["options"] == {"rows": 6} and runtime["recipe"] == "hard"
    assert told["parameters"]["options"] == {"rows": 6, "depth": 3}, "with the default"
    assert {"kedro", "torch", "anmi-retrieval"} <= told["packages"].keys()
    assert told["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    nodes = {entry["node"].rpartition(".")[2]: entry for entry in told["nodes"]}
    assert nodes.keys() == {"ingest", "index", "select", "train", "write", "tell"}
    assert all(entry["seconds"] >= 0 for entry in nodes.values())
    if Path("/proc/self/clear_refs").exists():
        # `train` holds 64 MiB and gives them back.
        assert nodes["train"]["peak_mib"] - nodes["write"]["peak_mib"] > 32


def test_the_console_is_quiet(finished: tuple[Selecting, str]) -> None:
    _, said = finished
    assert said.count("INFO") == 6 and "6/6 " in said
    for noise in ("alembic", "Loading data", "Traceback", "Warning"):
        assert noise not in said


def test_one_run_with_parameters_metrics_versions_and_report(
    finished: tuple[Selecting, str],
) -> None:
    from mlflow import MlflowClient

    project, _ = finished
    (run,) = project.tracked()
    assert run.info.status == "FINISHED" and run.info.run_name.startswith("hard · beir:")
    given, tags = run.data.params, run.data.tags
    assert (given["options.rows"], given["options.depth"], given["recipe"]) == ("6", "3", "hard")
    assert not [name for name in given if name.startswith("recipes.")], "no node reads them"
    assert run.data.metrics["test/ndcg_at_10"] == 0.6
    assert run.data.metrics["summary/loss"] == 1.0
    assert tags["run_id"] == project.records()[0]["run_id"]
    assert (tags["environment"], tags["pipelines"]) == ("local", "__default__")
    assert "git_commit" in tags
    # They would hide the others.
    assert not [name for name in tags if name.startswith(("load.", "save."))]
    history = {name for name in run.data.metrics if name.startswith("history/")}
    assert history == {"history/a", "history/rare", "history/edge"}
    (rows,) = run.inputs.dataset_inputs
    noted = project.records()[0]["saved"]["training_rows"]
    assert (rows.dataset.name, rows.dataset.digest) == ("training_rows", noted["digest"])
    assert Path(json.loads(rows.dataset.source)["uri"]).is_file()
    client = MlflowClient(tracking_uri=project.database)
    assert "report.html" in {found.path for found in client.list_artifacts(run.info.run_id)}

    def points(name: str) -> list[tuple[int, float]]:
        history = client.get_metric_history(run.info.run_id, f"history/{name}")
        return [(point.step, point.value) for point in history]

    assert points("a") == [(step, step - 1.0) for step in range(1, 7)]
    assert points("rare") == [(6, 0.5)], "what is measured now and then is not logged in between"
    assert [step for step, _ in points("edge")] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("how", "code", "status", "mlflow"),
    [("fail", 1, "failed", "FAILED"), ("stop", 143, "interrupted", "KILLED")],
)
def test_a_run_that_ended_early_is_closed_everywhere(
    tracked: Selecting, how: str, code: int, status: str, mlflow: str
) -> None:
    found, said = tracked.do(f"run --params {tracked.options}", AT_SELECT=how)
    (noted,), (run,) = tracked.records(), tracked.tracked()
    ends = (found, noted["status"], noted["failed_at"], run.info.status)
    assert ends == (code, status, "select", mlflow), said
    assert "Traceback" not in said
    if how == "fail":
        assert said.endswith("Error: the judge gave no answer: try again later")
        assert "the judge gave no answer" in noted["error"]
        assert "the judge gave no answer" in run.data.tags["error"]


def test_tasks_of_a_scheduler_share_a_run(tracked: Selecting) -> None:
    tracked.do(f"run --pipelines mine --params {tracked.options}")
    (first,) = tracked.tracked()
    shared = {"MLFLOW_RUN_ID": first.info.run_id}
    after = f"run --pipelines after --params {tracked.options},options.rows=9"
    _, said = tracked.do(after, **shared)
    (both,) = tracked.tracked()
    assert both.info.status == "FINISHED", said
    # Made by the task before.
    assert both.data.tags["load.training_rows"] == first.data.tags["run_id"]
    assert both.data.params["options.rows"] == "4", "what the first task logged stays"
    mine = f"run --pipelines mine --params {tracked.options}"
    assert tracked.do(mine, AT_SELECT="fail", **shared)[0] == 1
    assert tracked.tracked()[0].info.status == "FAILED"


@pytest.mark.rare
def test_the_mlflow_run_of_a_killed_run_goes_on(tracked: Selecting) -> None:
    assert tracked.do(f"run --params {tracked.options}", AT_SELECT="kill")[0] == -9
    assert tracked.tracked()[0].info.status == "RUNNING"
    code, said = tracked.do("anmi resume")
    assert code == 0, said
    (run,), (noted,) = tracked.tracked(), tracked.records()
    assert (run.info.status, run.data.tags["run_id"]) == ("FINISHED", noted["run_id"])
    assert noted["tracking_run"] == run.info.run_id


OPEN_RUN = """
import sys
import mlflow.store.tracking.sqlalchemy_store
from anmi.datasets.model_registry import connect
from anmi.hooks import MlflowHooks, RunHooks
from anmi.hooks.record import RunRecord
run_hooks = RunHooks()
run_hooks.record = RunRecord(run_id=sys.argv[1], parameters={"recipe": sys.argv[1]})
hooks = MlflowHooks(run_hooks)
print("ready", flush=True)
sys.stdin.readline()
hooks._client, hooks._uri = connect(sys.argv[2]), sys.argv[2]
hooks._open(set())
"""


@pytest.mark.rare
def test_two_first_runs_at_once_make_one_database(tmp_path: Path) -> None:
    project = Selecting(tmp_path, Commands())
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", OPEN_RUN]
    opening = [
        subprocess.Popen([*command, name, project.database], text=True, **pipes)
        for name in ("one", "other")
    ]
    try:
        ready = [process.stdout.readline() for process in opening if process.stdout]
        assert ready == ["ready\n"] * 2
        for process in opening:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=300)[1] for process in opening]
        assert [process.returncode for process in opening] == [0, 0], said
    finally:
        for process in opening:
            process.kill()
    assert {run.info.run_name for run in project.tracked()} == {"one", "other"}


def test_an_unreachable_server_is_noticed_before_anything_runs(tracked: Selecting) -> None:
    started, server = time.monotonic(), "http://user:secret@127.0.0.1:9"
    code, said = tracked.do(f"run --params {tracked.options}", MLFLOW_TRACKING_URI=server)
    assert code == 1 and time.monotonic() - started < 60
    assert "MLFLOW_TRACKING_URI" in said
    assert "secret" not in said and "Traceback" not in said
    assert not (tracked.data / "mini").exists()


def test_mlflow_sends_no_telemetry() -> None:
    script = (
        "import anmi.settings; from mlflow.telemetry.utils import is_telemetry_disabled as off;"
        " print(off())"
    )
    # Under pytest and in CI MLflow is silent by itself.
    clean = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "True"


def test_a_step_of_more_than_half_a_minute_says_that_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from anmi.hooks import RunHooks, run

    lines: list[str] = []
    monkeypatch.setattr(run, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(run.logger, "info", lambda text, *values: lines.append(text % values))
    hooks = RunHooks()
    now = time.perf_counter()
    hooks._start_times |= {"slow": now - 31, "quick": now}
    ended = Event()
    thread = Thread(target=hooks._tell_running, args=(ended,))
    thread.start()
    time.sleep(0.2)
    ended.set()
    thread.join()
    assert lines == ["slow has been running for 31 s"]
