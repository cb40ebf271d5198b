"""A small Kedro project that uses this project's settings, hooks and commands."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.commands import Commands, environment

FILES = {
    "pyproject.toml": """
        [tool.kedro]
        package_name = "miniature"
        project_name = "miniature"
        kedro_init_version = "1.7.0"
        source_dir = "src"
    """,
    "conf/base/globals.yml": "data: ${oc.env:ANMI_DATA_ROOT,data}\n",
    "conf/base/mlflow.yml": "experiment: miniature\n",
    "conf/local/.gitkeep": "",
    "conf/base/parameters.yml": """
        collection: api_docs
        encoder: minilm
        recipe: plain
        recipes:
          plain: {negatives: 7}
          naive_top: {negatives: 3}
        table: {rows: 5, shape: {width: 2}}
        fail: "no"
    """,
    "conf/base/catalog.yml": """
        table:
          type: anmi.datasets.TableDataset
          filepath: ${globals:data}/mini/table.parquet
          versioned: true
          metadata: {anmi: {mlflow: history}}
        metrics:
          type: anmi.datasets.JsonDataset
          filepath: ${globals:data}/mini/metrics.json
          versioned: true
          metadata: {anmi: {mlflow: metrics}}
        report:
          type: anmi.datasets.TextDataset
          filepath: ${globals:data}/mini/report.html
          versioned: true
          metadata: {anmi: {mlflow: artifact}}
    """,
    "src/miniature/__init__.py": "",
    "src/miniature/cli.py": "from anmi.cli import cli\n",
    "src/miniature/settings.py": """
        from anmi.settings import CONFIG_LOADER_ARGS, DISABLE_HOOKS_FOR_PLUGINS, HOOKS
    """,
    "src/miniature/pipeline_registry.py": """
        import os, signal, time
        import pandas as pd
        from kedro.pipeline import Node, Pipeline
        from pydantic import BaseModel, ConfigDict, Field
        from anmi.errors import AnmiError

        class Shape(BaseModel):
            model_config = ConfigDict(extra="forbid")
            width: int = Field(2, ge=1)

        class Table(BaseModel):
            model_config = ConfigDict(extra="forbid")
            rows: int
            shape: Shape = Shape()
            hidden_default: float = 0.25

        def make(options: Table, fail: str) -> pd.DataFrame:
            if fail == "user":
                raise AnmiError("corpus.jsonl, line 3: no _id: add one")
            if fail == "defect":
                raise RuntimeError("something of ours is broken")
            if fail == "stopped":
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            rows = range(options.rows)
            return pd.DataFrame({"step": [i + 1 for i in rows], "a": rows, "rare": [None] * (options.rows - 1) + [0.5],
                                 "text": "x", "edge": [float("inf"), *rows[1:]]})

        def measure(table: pd.DataFrame) -> dict:
            held = bytearray(64 * 2**20)
            return {"test": {"ndcg@10": float(len(table)) / 10, "name": "x"}, "loss": [3.0, 2.0, 1.0], "n": len(held)}

        def write(metrics: dict) -> str:
            return f"<p>{metrics['test']['ndcg@10']}</p>"

        def register_pipelines():
            first = Pipeline([Node(make, ["params:table", "params:fail"], "table", name="make")])
            second = Pipeline([Node(measure, "table", "metrics", name="measure"),
                               Node(write, "metrics", "report", name="write")])
            return {"first": first, "second": second, "__default__": first + second}
    """,
}


@dataclass
class Project:
    """A project folder, and ``kedro`` in it as a user would type it."""

    path: Path
    commands: Commands

    def kedro(self, *arguments: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = self.commands.run(arguments, self.path, environment(**variables), timeout=900)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    @property
    def database(self) -> str:
        return f"sqlite:///{self.path}/data/tracking/mlflow.db"


def write_files(path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    shutil.copy(Path(__file__).parents[2] / "conf" / "logging.yml", path / "conf")


def write_project(path: Path, commands: Commands) -> Project:
    write_files(path, FILES)
    return Project(path, commands)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty tracking database; making one takes MLflow seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("database") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def project(tmp_path: Path, commands: Commands) -> Project:
    """A project in which tracking is off."""
    project = write_project(tmp_path, commands)
    (tmp_path / "conf" / "local" / "mlflow.yml").write_text("enabled: false\n")
    return project


@pytest.fixture
def tracked_project(tmp_path: Path, database: Path, commands: Commands) -> Project:
    """A project with a tracking database in it."""
    project = write_project(tmp_path, commands)
    place = tmp_path / "data" / "tracking"
    place.mkdir(parents=True)
    shutil.copy(database, place / "mlflow.db")
    return project


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Project:
    """A project after one run; shared, so tests only read it."""
    project = write_project(tmp_path_factory.mktemp("finished"), commands)
    project.console = project.kedro("run", "--params", "table.rows=6,recipe=naive_top")  # type: ignore[attr-defined]
    return project
