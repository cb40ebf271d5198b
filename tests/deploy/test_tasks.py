"""A run in several tasks: one version, loads from it alone, retries that go on, one MLflow run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result


@dataclass
class Begun:
    """A run of which ingestion and BM25 are done."""

    invoke: Callable[..., Result]
    data: Path
    version: str
    mlflow_run: str

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.data / "runs" / self.version / "manifest.json").read_text(encoding="utf-8")))

    def artifact(self, stage: str, name: str) -> Path:
        return self.data / stage / name / self.version / name

    def run(self, pipeline: str, *options: str) -> Result:
        done = self.invoke("task", "run", "--env", "test", *options, "--", self.version, pipeline)
        assert done.exit_code == 0, done.output + str(done.exception)
        return done

    def tracked(self) -> list[Any]:
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{self.data}/tracking/mlflow.db")
        return list(client.search_runs([client.get_experiment_by_name("anmi-test").experiment_id]))


@pytest.fixture(scope="module")
def begun(project: Path, new_store: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    from kedro.framework.startup import bootstrap_project

    from anmi.cli import cli

    bootstrap_project(project)
    place = tmp_path_factory.mktemp("tasks")

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["anmi", *arguments])

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("ANMI_DATA_ROOT", str(place / "data"))
        patch.setenv("ANMI_STORE", str(new_store(place / "store")))
        opened = json.loads(invoke("task", "open", "--env", "test", "--", "nightly/1").output)
        patch.setenv("MLFLOW_RUN_ID", opened["mlflow_run"])
        found = Begun(invoke, place / "data", **opened)
        found.run("ingestion")
        found.run("bm25")
        yield found


def test_asked_again_it_opens_no_second_run(begun: Begun) -> None:
    opened = begun.invoke("task", "open", "--env", "test", "--", "nightly/1").output
    assert json.loads(opened) == {"version": begun.version, "mlflow_run": begun.mlflow_run}
    assert len(begun.tracked()) == 1


def test_all_tasks_save_and_load_one_version(begun: Begun) -> None:
    told = begun.manifest()
    assert {"corpus", "related_documents", "bm25_index", "terms"} <= told["saved"].keys()
    assert told["loaded"].pop("store", None) is None, "the store has no version"
    assert {*told["saved"].values(), *told["loaded"].values()} == {begun.version}
    assert told["nodes"][0]["node"] == "ingest"
    assert told["pipelines"] == ["bm25", "ingestion"]
    assert told["status"] == "finished"


def test_what_another_run_saves_later_is_not_loaded(begun: Begun) -> None:
    newer = begun.data / "02_intermediate" / "corpus.parquet" / "2999-01-01T00.00.00.000Z" / "corpus.parquet"
    newer.parent.mkdir()
    newer.write_bytes(b"not the corpus of this run")
    shutil.rmtree(begun.artifact("03_primary", "bm25_index").parent)
    try:
        begun.run("bm25")
    finally:
        shutil.rmtree(newer.parent)
    assert begun.manifest()["loaded"]["corpus"] == begun.version


def test_a_retry_leaves_what_is_done(begun: Begun) -> None:
    terms = begun.artifact("03_primary", "terms")
    before = {path: path.stat().st_mtime_ns for path in terms.rglob("*")}
    shutil.rmtree(begun.artifact("03_primary", "bm25_index").parent)
    begun.run("bm25")
    assert begun.artifact("03_primary", "bm25_index").exists()
    assert {path: path.stat().st_mtime_ns for path in terms.rglob("*")} == before


def test_a_node_that_was_killed_between_two_outputs_is_done_again(begun: Begun) -> None:
    before = pd.read_parquet(begun.artifact("02_intermediate", "corpus.parquet"))
    for name in ("quarantine.parquet",):
        begun.artifact("ingestion", name).unlink()
    # As a killed task leaves its manifest: running, and nothing of what it saved.
    path = begun.data / "runs" / begun.version / "manifest.json"
    told = begun.manifest()
    path.write_text(json.dumps(told | {"status": "running", "saved": {}}), encoding="utf-8")
    begun.run("ingestion")
    assert begun.artifact("02_intermediate", "quarantine.parquet").exists()
    pd.testing.assert_frame_equal(pd.read_parquet(begun.artifact("02_intermediate", "corpus.parquet")), before)
    begun.run("bm25")
    assert begun.manifest()["saved"] == told["saved"], "what an attempt before had saved is told of as well"


def test_parts_of_one_run_have_the_same_parameters(begun: Begun) -> None:
    done = begun.invoke("task", "run", "--env", "test", "--params", "seed=3", "--", begun.version, "bm25")
    assert done.exit_code != 0
    assert "was begun with the parameters {}" in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("task", "run", "--env", "test", "--", "../../x", "bm25"), "kedro anmi task open"),
        (("task", "run", "--env", "test", "--", "2026-01-01T00.00.00.000Z", "bm52"), 'did you mean "bm25"'),
        (("task", "open", "--env", "test", "--", "a' OR '1'='1"), "letters, digits"),
    ],
)
def test_what_is_no_version_pipeline_or_key_is_refused(begun: Begun, arguments: Any, told: str) -> None:
    done = begun.invoke(*arguments)
    assert done.exit_code != 0
    assert told in done.output


def test_the_mlflow_run_ends_as_the_scheduler_says(begun: Begun) -> None:
    for option, status in (((), "FINISHED"), (("--failed",), "FAILED")):
        done = begun.invoke("task", "close", "--env", "test", *option, "--", "nightly/1")
        assert done.exit_code == 0, done.output
        (run,) = begun.tracked()
        assert run.info.status == status
    assert run.data.tags["scheduler.version"] == begun.version
    done = begun.invoke("task", "close", "--env", "test", "--json", "--", "nightly/1")
    told = {"key": "nightly/1", "mlflow_run": begun.tracked()[0].info.run_id, "status": "FINISHED"}
    assert json.loads(done.output) == told
    done = begun.invoke("task", "close", "--env", "test", "--", "nightly/2")
    assert (done.exit_code, "no MLflow run" in done.output) == (0, True)
