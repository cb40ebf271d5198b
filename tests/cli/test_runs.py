"""``kedro anmi runs``, ``reproduce``, ``resume`` and ``prune``, as typed, in a small project."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hooks.conftest import database  # noqa: F401
from tests.runs.conftest import Driver, Selecting, write_selecting


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.close()


@pytest.fixture
def selecting(tmp_path: Path, driver: Driver) -> Selecting:
    return write_selecting(tmp_path, driver)


def run(project: Selecting, *more: str) -> str:
    return f"run --params {','.join([project.options, *more])}"


def test_a_killed_run_is_listed_and_resumed_to_the_same_end(
    selecting: Selecting, driver: Driver, tmp_path_factory: Any
) -> None:
    whole = write_selecting(tmp_path_factory.mktemp("whole"), driver)
    shutil.rmtree(whole.path / "collection")
    (whole.path / "collection").symlink_to(selecting.path / "collection")
    code, _ = whole.do(run(selecting, "options.rows=5"))
    assert code == 0
    code, _ = selecting.do(run(selecting, "options.rows=5"), AT_SELECT="kill")
    assert code == -9
    listed, resumed, after, again = map(selecting.do, ("anmi runs", "anmi resume", "anmi runs --json", "anmi resume"))
    assert "killed" in listed[1]
    assert resumed[0] == 0, resumed[1]
    assert "3 nodes were left to run" in resumed[1], "select, train and tell"
    assert "told {'rows': 5}" in resumed[1], "a node of side effects runs again"
    first, second = selecting.manifests()
    rows = json.loads(after[1])
    assert [(row["run_id"], row["status"]) for row in rows] == [
        (second["run_id"], "finished"),
        (first["run_id"], "killed"),
    ]
    assert all(row["bytes"] > 0 for row in rows)
    assert second["resumed_from"] == first["run_id"]
    assert second["reused"] == dict.fromkeys(["corpus", "index"], first["run_id"])
    assert second["loaded"]["corpus"] == first["run_id"]
    assert second["parameters"] == first["parameters"]
    assert second["models"]["index"] == "index-of-3", "known of what was taken over as well"
    assert selecting.newest() == whole.newest()
    assert again[0] == 1
    assert "nothing to resume" in again[1]


def test_a_run_resumed_twice_takes_over_from_both(selecting: Selecting) -> None:
    selecting.do(run(selecting), AT_SELECT="kill")
    code, text = selecting.do("anmi resume", AT_SELECT="fail")
    assert code == 1
    assert text.endswith("Error: the judge gave no answer: try again later")
    code, text = selecting.do("anmi resume")
    assert code == 0, text
    first, second, third = selecting.manifests()
    assert second["status"] == "failed"
    assert third["resumed_from"] == second["run_id"]
    assert third["reused"] == dict.fromkeys(["corpus", "index"], first["run_id"])


def test_it_is_not_resumed_where_something_changed(selecting: Selecting) -> None:
    selecting.do(run(selecting), AT_SELECT="kill")
    parameters = selecting.path / "conf/base/parameters.yml"
    parameters.write_text("collection: api_docs\nseed: 1\noptions: {depth: 2}\n")
    corpus = selecting.path / "collection" / "corpus.jsonl"
    corpus.write_text(corpus.read_text() + '{"_id": "d9", "text": "new"}\n')
    refused, forced = selecting.do("anmi resume"), selecting.do("anmi resume --force")
    assert refused[0] == 1
    assert "options.depth is 2 (was 3)" in refused[1]
    assert "corpus.jsonl changed" in refused[1]
    assert forced[0] == 0, forced[1]
    assert selecting.manifests()[-1]["parameters"]["options"]["depth"] == 3, "its own parameters"


def test_a_damaged_artifact_is_made_again(selecting: Selecting) -> None:
    selecting.do(run(selecting), AT_SELECT="kill")
    (index,) = (selecting.data / "mini").glob("index.json/*/index.json")
    index.write_text(index.read_text()[:5])
    code, text = selecting.do("anmi resume --json")
    assert code == 0, text
    assert '"nodes": [ "index", "select", "train", "tell" ]' in text


def test_a_run_is_reproduced_byte_for_byte_whatever_the_files_say_by_now(selecting: Selecting) -> None:
    selecting.do(run(selecting, "options.rows=5"))
    (run_id,) = [manifest["run_id"] for manifest in selecting.manifests()]
    before = selecting.newest()
    (selecting.path / "conf/base/parameters.yml").write_text("collection: api_docs\nseed: 2\noptions: {depth: 2}\n")
    code, text = selecting.do("anmi reproduce latest")
    assert code == 0, text
    assert "selection: equal, byte for byte" in text
    assert selecting.newest() == before, "it writes to a folder of its own"
    code, text = selecting.do("anmi reproduce previous")
    assert code == 1
    assert 'there is no "previous" run' in text
    assert "1 are finished" in text
    assert not (selecting.data / "reproduce" / run_id).exists()
    assert len(selecting.manifests()) == 1


def test_what_differs_is_counted(selecting: Selecting) -> None:
    selecting.do(run(selecting))
    (run_id,) = [manifest["run_id"] for manifest in selecting.manifests()]
    code, text = selecting.do(f"anmi reproduce {run_id} --json", VERDICT="0")
    assert code == 1
    told = json.loads(text)
    assert (told["run_id"], told["equal"]) == (run_id, False)
    assert told["differences"]["selection"]["counts"]["verdicts"] == 12
    assert told["differences"]["training_rows"] == {"files": [], "counts": {}}
    code, text = selecting.do(f"anmi reproduce {run_id[:16]}", VERDICT="0")
    assert code == 1
    assert "selection: differs: part-00000.parquet has other bytes" in text
    assert "0 queries, 0 candidates, 12 verdicts" in text
    assert "training_rows: equal" in text
    corpus = selecting.path / "collection" / "corpus.jsonl"
    corpus.write_text(corpus.read_text() + '{"_id": "d9", "text": "new"}\n')
    code, text = selecting.do(f"anmi reproduce {run_id} --keep")
    assert code == 0, "what was selected does not depend on it"
    assert "Warning: collection changed since" in text
    assert (selecting.data / "reproduce" / run_id / "runs").is_dir()
    code, text = selecting.do("anmi reproduce 1999")
    assert code == 1
    assert 'there is no run "1999"' in text


def test_prune_keeps_what_is_referred_to(selecting: Selecting) -> None:
    whole, part = run(selecting), f"run --pipelines after --params {selecting.options}"
    for command in (whole, whole, part):
        selecting.do(command)
    first, second, third = (manifest["run_id"] for manifest in selecting.manifests())
    leftover = selecting.data / "mini" / ".table.x1.tmp"
    leftover.mkdir()
    (leftover / "half").write_text("x")
    _, text = selecting.do("anmi prune --keep 1 --dry-run")
    assert first in text
    assert f"kept: {second} ({third} refers to it)" in text
    assert "leftover" not in text, "it may be somebody's"
    os.utime(leftover / "half", (time.time() - 90_000,) * 2)
    os.utime(leftover, (time.time() - 90_000,) * 2)
    before = selecting.versions()
    code, text = selecting.do("anmi prune --keep 1 --dry-run")
    assert "would be removed: 5 versions, 1 manifest, 1 leftover" in text
    code, text = selecting.do("anmi prune --keep 1 --dry-run --json")
    told = json.loads(text)
    assert told["removed"] is False
    assert told["kept"][second] == f"{third} refers to it"
    kinds = [item["kind"] for item in told["removals"]]
    assert (kinds.count("version"), kinds.count("manifest"), kinds.count("leftover")) == (5, 1, 1)
    assert selecting.versions() == before
    code, text = selecting.do("anmi prune --keep 1 --yes")
    assert code == 0, text
    assert "removed: 5 versions, 1 manifest, 1 leftover" in text
    assert not leftover.exists()
    assert selecting.versions() == {
        "corpus.parquet": [second],
        "index.json": [second],
        "selection": [second],
        "summary.json": [second, third],
        "training_rows.parquet": [second],
    }
    assert [manifest["run_id"] for manifest in selecting.manifests()] == [second, third]
    assert not list(selecting.data.glob(".pruned*"))


@pytest.mark.rare
def test_the_mlflow_run_of_a_killed_run_goes_on_and_tells_the_lineage(
    selecting: Selecting,
    database: Path,  # noqa: F811
) -> None:
    from mlflow import MlflowClient

    (selecting.path / "conf/base/mlflow.yml").write_text("enabled: true\nexperiment: miniature\n")
    place = selecting.data / "tracking"
    place.mkdir(parents=True)
    shutil.copy(database, place / "mlflow.db")
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")

    def tracked() -> Any:
        (run,) = client.search_runs([client.get_experiment_by_name("miniature").experiment_id])
        return run

    assert selecting.do(run(selecting), AT_SELECT="kill")[0] == -9
    assert tracked().info.status == "RUNNING"
    code, text = selecting.do("anmi resume")
    assert code == 0, text
    first, second = selecting.manifests()
    assert tracked().info.status == "FINISHED"
    tags = tracked().data.tags
    assert (tags["run_id"], tags["resumed_from"]) == (second["run_id"], first["run_id"])
    assert "corpus" in tags[f"reused.{first['run_id']}"]
    assert tags["digest.selection"] == second["files"]["selection"]["digest"]
    assert tags["fingerprint.index"] == "index-of-3"
    assert (tags["code"], tags["collection_digest"]) == (second["code"], second["collection"]["digest"])
    assert second["collection"]["files"][0]["bytes"] == (selecting.path / "collection/corpus.jsonl").stat().st_size
    assert second["tracking_run"] == tracked().info.run_id
