"""A small project with this project's settings, hooks and commands, and many commands in it from one process."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commands import Commands, environment

from anmi.datasets.artifact import record_of

KINDS = {
    "corpus.parquet": "TableDataset",
    "index.json": "JsonDataset",
    "selection": "CandidateShardsDataset",
    "training_rows.parquet": "TableDataset",
    "summary.json": "JsonDataset",
    "history.parquet": "TableDataset",
    "report.html": "TextDataset",
}
TRACKED = {"summary.json": "metrics", "history.parquet": "history", "report.html": "artifact"}
FILES = {
    "pyproject.toml": (
        """
        [tool.kedro]
        package_name = "miniature"
        project_name = "miniature"
        kedro_init_version = "1.7.0"
        source_dir = "src"
    """
    ),
    "conf/base/globals.yml": "data: ${oc.env:ANMI_DATA_ROOT,data}\n",
    "conf/local/.gitkeep": "",
    "conf/base/parameters.yml": (
        """
        {collection: api_docs, encoder: minilm, recipe: plain, recipes: {plain: {}, hard: {}}, seed: 1, options: {},
         dense: {encoder: null, prompt_query: null, prompt_document: null, max_length: 256}}
    """
    ),
    "conf/base/catalog.yml": "".join(
        f"{name.partition('.')[0]}: {{type: anmi.datasets.{kind}, filepath:"
        f" '${{globals:data}}/mini/{name}', versioned: true, metadata: {{anmi: {{mlflow:"
        f" {TRACKED.get(name, 'null')}}}}}}}\n"
        for name, kind in KINDS.items()
    ),
    "collection/corpus.jsonl": "".join(f'{{"_id": "d{i}", "text": "t{i}"}}\n' for i in range(3)),
    "src/miniature/__init__.py": "",
    "src/miniature/cli.py": "from anmi.cli import cli\n",
    "src/miniature/settings.py": (
        "from anmi.settings import CONFIG_LOADER_ARGS, DISABLE_HOOKS_FOR_PLUGINS, HOOKS\n"
    ),
    "src/miniature/pipeline_registry.py": (
        """
        import os, signal, time
        import numpy as np
        import pandas as pd
        from kedro.pipeline import Node, Pipeline
        from pydantic import BaseModel, ConfigDict
        from anmi.candidates import Candidates, CandidateShards
        from anmi.errors import AnmiError

        class Options(BaseModel):
            model_config = ConfigDict(extra="forbid")
            rows: int = 4
            depth: int = 3

        def ingest(collection: str) -> pd.DataFrame:
            return pd.read_json(collection.partition(":")[2] + "/corpus.jsonl", lines=True)

        def index(corpus: pd.DataFrame) -> dict:
            return {"fingerprint": f"index-of-{len(corpus)}"}

        def select(corpus: pd.DataFrame, index: dict, options: Options, seed: int, encoder: str, recipe: str,
                   dense: dict) -> tuple:
            if os.environ.get("AT_SELECT") == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if os.environ.get("AT_SELECT") == "stop":
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            if os.environ.get("AT_SELECT") == "wait":
                time.sleep(100)
            if os.environ.get("AT_SELECT") == "fail":
                raise AnmiError("the judge gave no answer: try again later")
            rows = np.tile(np.arange(9, dtype=np.int32), (options.rows, 1))
            documents = np.random.default_rng(seed).permuted(rows, axis=1)[:, :options.depth]
            block = Candidates(
                query_ids=np.array([f"q{i}" for i in range(len(rows))]), positives=rows[:, -1:], documents=documents,
                source=np.ones(documents.shape, np.uint8), columns={},
            )
            return CandidateShards.of([block]), pd.DataFrame({"query_id": block.query_ids})

        def train(rows: pd.DataFrame, options: Options, seed: int, encoder: str, recipe: str) -> tuple:
            held = bytearray(64 * 2**20)
            count = range(len(rows))
            history = {"step": [i + 1 for i in count], "a": count, "rare": [*[None] * (len(rows) - 1), 0.5],
                       "text": "x", "edge": [float("inf"), *count[1:]]}
            found = {"rows": len(rows), "loss": [3.0, 2.0, 1.0], "test": {"ndcg@10": len(rows) / 10, "name": "x"}}
            return found, pd.DataFrame(history)

        def write(summary: dict) -> str:
            return f"<p>{summary['rows']}</p>"

        def tell(summary: dict) -> None:
            print("told of", summary["rows"])

        def register_pipelines():
            called = ["params:options", "params:seed", "params:encoder", "params:recipe"]
            mine = Pipeline([Node(ingest, "params:collection", "corpus", name="ingest"),
                             Node(index, "corpus", "index", name="index"),
                             Node(select, ["corpus", "index", *called, "params:dense"],
                                  ["selection", "training_rows"], name="select")])
            after = Pipeline([Node(train, ["training_rows", *called], ["summary", "history"], name="train",
                                   namespace="training"),
                              Node(write, "summary", "report", name="write"), Node(tell, "summary", None, name="tell")])
            return {"mine": mine, "after": after, "__default__": mine + after}
    """
    ),
}


@dataclass
class Selecting:
    """A project folder with its data root and collection."""

    path: Path
    commands: Commands

    @property
    def data(self) -> Path:
        """The data root."""
        return self.path / "data"

    @property
    def options(self) -> str:
        """What `--params` takes to run on the collection."""
        return f"collection=beir:{self.path}/collection"

    @property
    def database(self) -> str:
        """Where runs are tracked."""
        return f"sqlite:///{self.data}/tracking/mlflow.db"

    def do(self, command: str, **variables: str) -> tuple[int, str]:
        """Run a command; return its exit code and what it printed."""
        done = self.commands.run(command.split(), self.path, environment(**variables), timeout=900)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def records(self) -> list[dict[str, Any]]:
        """Return all records, the oldest first."""
        return [
            record_of(str(self.data), path.name) for path in sorted((self.data / "runs").iterdir())
        ]

    def tracked(self) -> list[Any]:
        """Return what MLflow knows of the runs, the newest first."""
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=self.database)
        found = client.get_experiment_by_name("anmi")
        return list(
            client.search_runs([found.experiment_id], order_by=["attributes.start_time DESC"])
        )

    def versions(self) -> dict[str, list[str]]:
        """Return the versions of each artifact that are there."""
        return {
            path.name: sorted(v.name for v in path.iterdir())
            for path in sorted((self.data / "mini").iterdir())
        }

    def newest(self) -> dict[str, bytes]:
        """Return the bytes of the newest version of each file."""
        found = {}
        for path in sorted((self.data / "mini").iterdir()):
            version = max(path.iterdir())
            for file in (file for file in version.rglob("*") if file.is_file()):
                found[f"{path.name}/{file.relative_to(version)}"] = file.read_bytes()
        return found


def write_selecting(path: Path, commands: Commands, database: Path | None = None) -> Selecting:
    """Write the project, in which runs are tracked where an empty database of MLflow is given."""
    made = Selecting(path, commands)
    for name, text in {
        **FILES,
        "conf/base/mlflow.yml": f"enabled: {database is not None}\n",
    }.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(textwrap.dedent(text))
    shutil.copy(Path(__file__).parents[2] / "conf" / "logging.yml", path / "conf")
    if database is not None:
        (made.data / "tracking").mkdir(parents=True)
        shutil.copy(database, made.data / "tracking")
    return made
