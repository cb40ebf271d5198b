"""What a run leaves behind: manifest, log, tracking. Real MLflow on SQLite, real ``kedro run`` in a small project."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


def manifest(project: Any) -> dict[str, Any]:
    newest = sorted((project.path / "data" / "runs").iterdir())[-1]
    return dict(json.loads((newest / "run.json").read_text()))


def tracked(uri: str, experiment: str = "miniature") -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id], order_by=["attributes.start_time DESC"]))


def test_the_manifest_tells_the_run(finished: Any) -> None:
    told = manifest(finished)
    version = told["run_id"]
    assert (finished.path / "data/mini/table.parquet" / version / "table.parquet").exists()
    assert {name: each["version"] for name, each in told["saved"].items()} == {
        "table": version, "metrics": version, "report": version,
    }  # fmt: skip
    assert all(each["files"] == 1 and each["bytes"] and each["digest"] for each in told["saved"].values())
    assert told["loaded"] == {}, "it read only what it made"
    assert told["status"] == "finished"
    assert told["start"] <= told["end"]
    assert told["runtime_parameters"] == {"table": {"rows": 6}, "recipe": "naive_top"}
    assert told["parameters"]["table"] == {"rows": 6, "shape": {"width": 2}, "hidden_default": 0.25}
    assert {"kedro", "torch", "anmi"} <= told["packages"].keys()
    assert told["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_every_node_has_its_time_and_its_own_peak(finished: Any) -> None:
    nodes = {entry["node"]: entry for entry in manifest(finished)["nodes"]}
    assert list(nodes) == ["make", "measure", "write"]
    assert all(entry["seconds"] >= 0 for entry in nodes.values())
    if Path("/proc/self/clear_refs").exists():
        # `measure` holds 64 MiB and gives them back.
        assert nodes["measure"]["peak_mib"] - nodes["write"]["peak_mib"] > 32


def test_the_console_is_quiet(finished: Any) -> None:
    console = finished.console.stdout + finished.console.stderr
    assert console.count("INFO") == 3
    assert "3/3  write" in console
    for noise in ("alembic", "Loading data", "Traceback", "Warning"):
        assert noise not in console


def test_one_run_with_parameters_metrics_versions_and_report(finished: Any) -> None:
    (run,) = tracked(finished.database)
    told = manifest(finished)
    assert run.info.status == "FINISHED"
    assert run.data.tags["run_id"] == told["run_id"]
    assert run.info.run_name.startswith("naive_top")
    assert run.data.params["table.hidden_default"] == "0.25"
    assert run.data.params["table.shape.width"] == "2"
    assert run.data.params["recipe"] == "naive_top"
    assert not [name for name in run.data.params if name.startswith("recipes.")], "no node reads them"
    assert run.data.metrics["test/ndcg_at_10"] == 0.6
    assert run.data.metrics["metrics/loss"] == 1.0
    assert run.data.tags["environment"] == "local"
    assert run.data.tags["pipelines"] == "__default__"
    assert "git_commit" in run.data.tags
    assert not [name for name in run.data.tags if name.startswith(("load.", "save."))], "they would hide the others"


def test_a_table_with_steps_becomes_curves(finished: Any) -> None:
    from mlflow import MlflowClient

    (run,) = tracked(finished.database)
    client = MlflowClient(tracking_uri=finished.database)
    assert {name for name in run.data.metrics if name.startswith("table/")} == {"table/a", "table/rare", "table/edge"}

    def points(name: str) -> list[tuple[int, float]]:
        return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]

    assert points("table/a") == [(step, step - 1.0) for step in range(1, 7)]
    assert points("table/rare") == [(6, 0.5)], "what is measured now and then is not logged in between"
    assert [step for step, _ in points("table/edge")] == [2, 3, 4, 5, 6]


def test_a_failed_run_is_failed_everywhere(tracked_project: Any) -> None:
    done = tracked_project.kedro("run", "--params", "fail=user", code=1)
    assert manifest(tracked_project)["status"] == "failed"
    assert "no _id" in manifest(tracked_project)["error"]
    (run,) = tracked(tracked_project.database)
    assert run.info.status == "FAILED"
    assert "no _id" in run.data.tags["error"]
    assert done.stderr.strip().splitlines()[-1] == "Error: corpus.jsonl, line 3: no _id: add one"
    assert "Traceback" not in done.stderr + done.stdout


def test_a_stopped_run_is_not_left_running(tracked_project: Any) -> None:
    tracked_project.kedro("run", "--params", "fail=stopped", code=143)
    assert manifest(tracked_project)["status"] == "interrupted"
    (run,) = tracked(tracked_project.database)
    assert run.info.status == "KILLED"


@pytest.mark.slow
def test_tasks_of_a_scheduler_share_a_run(tracked_project: Any) -> None:
    tracked_project.kedro("run", "--pipelines", "first")
    (first,) = tracked(tracked_project.database)
    shared = {"MLFLOW_RUN_ID": first.info.run_id}
    tracked_project.kedro("run", "--pipelines", "second", "--params", "table.rows=9", **shared)
    (both,) = tracked(tracked_project.database)
    assert both.info.status == "FINISHED"
    assert both.data.tags["load.table"] == first.data.tags["run_id"], "made by the task before"
    assert both.data.params["table.rows"] == "5", "what the first task logged stays"
    tracked_project.kedro("run", "--pipelines", "first", "--params", "fail=user", code=1, **shared)
    assert tracked(tracked_project.database)[0].info.status == "FAILED"


OPEN_RUN = """
import sys
import mlflow.store.tracking.sqlalchemy_store
from anmi.datasets.model_registry import connect
from anmi.hooks import MlflowHooks, RunRecord
hooks = MlflowHooks(RunRecord(run_id=sys.argv[1], parameters={"recipe": sys.argv[1]}))
print("ready", flush=True)
sys.stdin.readline()
hooks._client, hooks._uri = connect(sys.argv[2]), sys.argv[2]
hooks._open(set())
"""


@pytest.mark.rare
def test_two_first_runs_at_once_make_one_database(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/tracking/mlflow.db"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    opening = [
        subprocess.Popen([sys.executable, "-c", OPEN_RUN, name, uri], text=True, **pipes) for name in ("one", "other")
    ]
    try:
        assert [process.stdout.readline() for process in opening if process.stdout] == ["ready\n"] * 2
        for process in opening:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=300)[1] for process in opening]
        assert [process.returncode for process in opening] == [0, 0], said
    finally:
        for process in opening:
            process.kill()
    assert {run.info.run_name for run in tracked(uri, "anmi")} == {"one", "other"}


@pytest.mark.slow
def test_an_unreachable_server_is_noticed_before_anything_runs(project: Any) -> None:
    (project.path / "conf/local/mlflow.yml").unlink()
    started = time.monotonic()
    done = project.kedro("run", code=1, MLFLOW_TRACKING_URI="http://user:secret@127.0.0.1:9")
    assert time.monotonic() - started < 60
    assert "MLFLOW_TRACKING_URI" in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.path / "data/mini").exists()
