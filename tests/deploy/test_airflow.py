"""The DAG: as text, and run by a real Airflow in an environment of its own."""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anmi.cli.airflow import tasks, write_dag
from anmi.errors import AnmiError
from anmi.pipeline_registry import STAGES

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "deploy" / "airflow" / "requirements.lock"


@pytest.fixture(autouse=True)
def bootstrapped(project: Path) -> None:
    from kedro.framework.startup import bootstrap_project

    bootstrap_project(project)


def constants(path: Path) -> dict[str, Any]:
    """Return the names that a file sets to plain values at its top."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def test_every_stage_is_a_task_in_its_order(tmp_path: Path) -> None:
    path = write_dag(tmp_path, pipelines="__default__", env="prod")
    assert constants(path)["PIPELINES"] == STAGES
    assert tasks(["mining", "adaptation", "training"]) == STAGES[:9]
    # Airflow reads every file of the folder again and again.
    heavy = {"anmi", "kedro", "mlflow", "torch", "pandas", "numpy"}
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert "airflow" in imported
    assert not imported & heavy


def test_pipelines_and_environments_have_ids_of_their_own(tmp_path: Path) -> None:
    paths = [
        write_dag(tmp_path, pipelines=pipelines, env=env)
        for pipelines in ("__default__", "mining", "retrain", "ingestion,bm25")
        for env in (None, "prod", "test")
    ]
    ids = [re.findall(r"dag_id='(.+)'", path.read_text(encoding="utf-8")) for path in paths]
    assert [found for (found,) in ids] == [path.stem for path in paths]
    assert len(set(paths)) == 12
    assert sorted(tmp_path.iterdir()) == sorted(paths), "nothing else lies in Airflow's folder"


def test_whatever_paths_and_schedules_are_called_they_stay_values(tmp_path: Path) -> None:
    odd = '/srv/it\'s "here" {{ x }} {% raw %}\\n\n$(touch x)'
    path = write_dag(tmp_path, pipelines="mining", env="prod", project=Path(odd), kedro=Path(odd), schedule="@daily")
    assert (constants(path)["PROJECT"], constants(path)["KEDRO"]) == (odd, odd)
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
    lines = re.findall(r"f'(.*)'$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert any("task run" in line for line in lines)
    assert not [line for line in lines if "{{" in line], "no command has anything filled in"


def test_the_generated_file_keeps_the_rules_of_the_house(tmp_path: Path) -> None:
    path = write_dag(tmp_path, pipelines="__default__", env="prod")
    command = [str(Path(sys.executable).with_name("ruff")), "check", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pipelines": "minning"}, 'did you mean "mining"'),
        ({"pipelines": "mining,bm25"}, "comes twice"),
        ({"pipelines": "mining", "schedule": "at night"}, "five fields"),
        ({"pipelines": "mining", "env": 'x"""; import os'}, "letters, digits"),
    ],
)
def test_what_no_dag_can_be_made_of_is_refused(options: dict[str, str], told: str, tmp_path: Path) -> None:
    with pytest.raises(AnmiError, match=told):
        write_dag(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_parameters_add_none_and_read_nothing(tmp_path: Path) -> None:
    path = write_dag(tmp_path, pipelines="mining", env="prod")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "kedro_params"]
    function.returns, function.args.args[0].annotation = None, None
    names: dict[str, Any] = {**constants(path), "re": re}
    exec(compile(ast.Module([function], []), str(path), "exec"), names)
    make: Callable[[dict[str, Any]], str] = names["kedro_params"]
    nothing = dict.fromkeys(names["PARAMETERS"])
    assert make(nothing) == ""
    assert make(nothing | {"collection": "pairs:/a b/*.jsonl;c", "recipe": "anmi"}) == (
        "collection=pairs:/a b/*.jsonl;c,recipe=anmi"
    )
    for value in ("a,seed=2", "${oc.env:AWS_SECRET_ACCESS_KEY}", "a\nb", "a\n", ""):
        with pytest.raises(ValueError, match="parameter recipe"):
            make(nothing | {"recipe": value})


@dataclass
class Airflow:
    """An Airflow of its own, with its folder of DAGs."""

    venv: Path
    home: Path
    dags: Path

    def __call__(self, *arguments: str, timeout: float = 1200, **variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("AIRFLOW", "ANMI", "MLFLOW", "KEDRO"))
        }
        own = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # Of Airflow's environment, and nothing that the project may trip over.
            "PYTHONPATH": str(self.home),
        }
        return subprocess.run(
            [str(self.venv / "bin" / "airflow"), *arguments],
            env={**inherited, **own, **variables}, capture_output=True, text=True, check=False, timeout=timeout,
        )  # fmt: skip

    def test(self, dag: Path, conf: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
        return self("dags", "test", dag.stem, "-f", str(dag), "-c", json.dumps(conf), **variables)


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Airflow as the lock file has it, installed once into build/airflow or found in ANMI_AIRFLOW_VENV."""
    if os.environ.get("ANMI_AIRFLOW") == "0":
        pytest.skip("ANMI_AIRFLOW=0 leaves Airflow out")
    venv = Path(os.environ.get("ANMI_AIRFLOW_VENV") or ROOT / "build" / "airflow")
    if not (venv / "bin" / "airflow").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
        pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--retries=1", "--timeout=20", "-r", str(LOCK)]
        done = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode:
            pytest.skip(f"Airflow cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
    home = tmp_path_factory.mktemp("airflow")
    found = Airflow(venv, home, home / "dags")
    found.dags.mkdir()
    done = found("db", "migrate", timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return found


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory, new_store: Any) -> dict[str, str]:
    place = tmp_path_factory.mktemp("place")
    return {"ANMI_DATA_ROOT": str(place / "data"), "ANMI_STORE": str(new_store(place / "store"))}


def tracked(folders: dict[str, str]) -> list[tuple[str, str]]:
    with sqlite3.connect(f"{folders['ANMI_DATA_ROOT']}/tracking/mlflow.db") as database:
        return database.execute("select run_uuid, status from runs order by start_time").fetchall()


@pytest.mark.slow
@pytest.mark.rare
def test_airflow_runs_every_stage_as_one_run(airflow: Airflow, folders: dict[str, str]) -> None:
    dag = write_dag(airflow.dags, pipelines="__default__", env="test", project=ROOT, retries=0)
    done = airflow.test(dag, {"recipe": "anmi_2_1"}, **folders)
    # What the commands themselves printed; Airflow tells much more.
    printed = [line.partition("]")[2] for line in done.stdout.splitlines() if "SubprocessHook" in line]
    assert done.returncode == 0, "\n".join(printed[-60:])
    data = Path(folders["ANMI_DATA_ROOT"])
    (place,) = (data / "runs").iterdir()
    told = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
    assert told["pipelines"] == sorted(STAGES)
    assert told["runtime_parameters"] == {"recipe": "anmi_2_1"}
    assert {version for version in told["saved"].values() if version} == {place.name}
    assert {version for version in told["loaded"].values() if version} == {place.name}
    assert {path.name for stage in STAGES for path in data.glob(f"{stage}/*/*")} == {place.name}
    ((run, status),) = tracked(folders)
    assert status == "FINISHED"
    with sqlite3.connect(data / "tracking" / "mlflow.db") as database:
        tags = dict(database.execute("select key, value from tags where run_uuid = ?", (run,)).fetchall())
    assert tags["run_id"] == place.name
    assert tags["scheduler.key"].startswith("anmi_default_test/")
    assert {"digest.selection", "digest.training_rows"} <= tags.keys()


@pytest.mark.slow
@pytest.mark.rare
def test_a_task_that_fails_fails_both_runs(airflow: Airflow, folders: dict[str, str], tmp_path: Path) -> None:
    dag = write_dag(airflow.dags, pipelines="ingestion,bm25", env="test", project=ROOT, retries=0)
    known = len(tracked(folders)) if Path(folders["ANMI_DATA_ROOT"], "tracking").exists() else 0
    planted = tmp_path / "planted"
    done = airflow.test(dag, {"collection": f"beir:/nowhere; touch {planted} `touch {planted}`"}, **folders)
    told = done.stdout + done.stderr
    assert done.returncode != 0
    assert not planted.exists()
    assert "/nowhere" in told
    assert [status for _, status in tracked(folders)][known:] == ["FAILED"]
    done = airflow.test(dag, {"recipe": "anmi,seed=2"}, **folders)
    assert done.returncode != 0
    assert len(tracked(folders)) == known + 1, "a parameter that would add another stops the run before it starts"
