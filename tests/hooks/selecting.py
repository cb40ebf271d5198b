"""A small project whose pipeline selects, and many commands in it from one process, each in a child of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commands import Commands, environment
from tests.hooks.conftest import FILES, write_files

from anmi.datasets.artifact import record_of

REGISTRY = """
    import os, signal, time
    from pathlib import Path
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

    def select(corpus: pd.DataFrame, index: dict, options: Options, seed: int, encoder: str, recipe: str) -> tuple:
        if os.environ.get("AT_SELECT") == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("AT_SELECT") == "fail":
            raise AnmiError("the judge gave no answer: try again later")
        if os.environ.get("AT_SELECT") == "wait":
            Path("waiting").touch()
            while Path("waiting").exists():
                time.sleep(0.01)
        shape = (options.rows, options.depth)
        documents = np.random.default_rng(seed).permuted(np.tile(np.arange(9, dtype=np.int32), (shape[0], 1)), axis=1)
        block = Candidates(
            query_ids=np.array([f"q{i}" for i in range(shape[0])]), positives=np.full((shape[0], 1), 9, np.int32),
            documents=documents[:, :shape[1]], source=np.ones(shape, np.uint8), columns={},
            verdict=np.full(shape, int(os.environ.get("VERDICT", 1)), np.uint8),
        )
        return CandidateShards.of([block]), pd.DataFrame({"query_id": block.query_ids})

    def train(rows: pd.DataFrame, options: Options, seed: int, encoder: str, recipe: str) -> dict:
        return {"rows": len(rows)}

    def tell(summary: dict) -> None:
        print("told", summary)

    def register_pipelines():
        called = ["params:options", "params:seed", "params:encoder", "params:recipe"]
        mine = Pipeline([Node(ingest, "params:collection", "corpus", name="ingest"),
                         Node(index, "corpus", "index", name="index"),
                         Node(select, ["corpus", "index", *called], ["selection", "training_rows"], name="select")])
        after = Pipeline([Node(train, ["training_rows", *called], "summary", name="train", namespace="training"),
                          Node(tell, "summary", None, name="tell")])
        return {"mine": mine, "after": after, "__default__": mine + after}
"""
KINDS = {
    "corpus": ("TableDataset", ".parquet"),
    "index": ("JsonDataset", ".json"),
    "selection": ("CandidateShardsDataset", ""),
    "training_rows": ("TableDataset", ".parquet"),
    "summary": ("JsonDataset", ".json"),
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

    def do(self, command: str, **variables: str) -> tuple[int, str]:
        """Run a command; return its exit code and what it printed."""
        done = self.commands.run(command.split(), self.path, environment(**variables), timeout=900)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def records(self) -> list[dict[str, Any]]:
        """Return all records, the oldest first."""
        return [record_of(str(self.data), path.name) for path in sorted((self.data / "runs").iterdir())]

    def versions(self) -> dict[str, list[str]]:
        """Return the versions of each artifact that are there."""
        return {path.name: sorted(v.name for v in path.iterdir()) for path in sorted((self.data / "mini").iterdir())}

    def newest(self) -> dict[str, bytes]:
        """Return the bytes of the newest version of each file."""
        found = {}
        for path in sorted((self.data / "mini").iterdir()):
            version = max(path.iterdir())
            for file in (file for file in version.rglob("*") if file.is_file()):
                found[f"{path.name}/{file.relative_to(version)}"] = file.read_bytes()
        return found


def write_selecting(path: Path, commands: Commands) -> Selecting:
    entries = "".join(
        f"{name}:\n  type: anmi.datasets.{kind}\n  filepath: ${{globals:data}}/mini/{name}{end}\n  versioned: true\n"
        for name, (kind, end) in KINDS.items()
    )
    files = FILES | {
        "conf/base/catalog.yml": entries,
        "conf/base/mlflow.yml": "enabled: false\n",
        "conf/base/parameters.yml": "collection: api_docs\nencoder: minilm\nrecipe: plain\n"
        "recipes: {plain: {}, hard: {}}\nseed: 1\noptions: {}\n",
        "src/miniature/pipeline_registry.py": REGISTRY,
        "collection/corpus.jsonl": "".join(f'{{"_id": "d{i}", "text": "t{i}"}}\n' for i in range(3)),
    }
    write_files(path, files)
    return Selecting(path, commands)
