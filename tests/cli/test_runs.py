"""``kedro anmi runs``, ``resume`` and ``prune``, as typed, in a small project."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import anmi
from tests.commands import Commands, environment
from tests.hooks.selecting import KINDS, Selecting, write_selecting

from anmi.cli.runs import kept
from anmi.store import Store


@pytest.fixture
def selecting(tmp_path: Path, commands: Commands) -> Selecting:
    return write_selecting(tmp_path, commands)


def run(project: Selecting, *more: str) -> str:
    return f"run --params {','.join([project.options, *more])}"


def test_a_killed_run_is_listed_and_resumed_to_the_same_end(
    selecting: Selecting, commands: Commands, tmp_path_factory: Any
) -> None:
    whole = write_selecting(tmp_path_factory.mktemp("whole"), commands)
    shutil.rmtree(whole.path / "collection")
    (whole.path / "collection").symlink_to(selecting.path / "collection")
    assert whole.do(run(selecting, "options.rows=5"))[0] == 0
    assert selecting.do(run(selecting, "options.rows=5"), AT_SELECT="kill")[0] == -9
    (before,) = selecting.records()
    listed, resumed, after, again = map(
        selecting.do, ("anmi runs", "anmi resume", "anmi runs --json", "anmi resume")
    )
    assert "killed" in listed[1]
    assert resumed[0] == 0, resumed[1]
    assert "4/4" in resumed[1], "select, train, write and tell"
    assert "told of 5" in resumed[1], "a node of side effects runs again"
    (record,) = selecting.records()
    assert [(row["run_id"], row["status"]) for row in json.loads(after[1])] == [
        (before["run_id"], "finished")
    ]
    assert record["start"] == before["start"] and record["parameters"] == before["parameters"]
    assert {each["version"] for each in record["saved"].values()} == {record["run_id"]}
    assert set(record["saved"]) > set(before["saved"]), (
        "what was saved before the kill is told of as well"
    )
    assert selecting.newest() == whole.newest()
    assert again[0] == 1 and "nothing to resume" in again[1]
    shown = selecting.do("anmi runs latest")
    assert json.loads(shown[1])["nodes"] == record["nodes"]


def test_a_node_that_was_killed_between_two_outputs_is_done_again(selecting: Selecting) -> None:
    selecting.do(run(selecting))
    (before,) = selecting.records()
    whole = selecting.newest()
    place = selecting.data / "runs" / before["run_id"] / "run.json"
    place.write_text(json.dumps(before | {"status": "running", "end": None}))
    (lost,) = selecting.data.glob("mini/training_rows.parquet/*/training_rows.parquet")
    lost.unlink()
    code, text = selecting.do("anmi resume")
    assert code == 0, text
    assert selecting.newest() == whole


def test_what_was_saved_just_before_the_kill_is_in_the_record_of_the_resumed_run(
    selecting: Selecting,
) -> None:
    selecting.do(run(selecting))
    (before,) = selecting.records()
    (lost,) = selecting.data.glob("mini/report.html/*/report.html")
    lost.unlink()
    saved = before["saved"]
    killed = {"saved": {name: saved[name] for name in saved if name not in ("index", "report")}}
    place = selecting.data / "runs" / before["run_id"] / "run.json"
    place.write_text(json.dumps(before | killed | {"status": "running", "end": None}))
    assert selecting.do("anmi resume")[0] == 0
    (after,) = selecting.records()
    assert after["saved"]["index"] == saved["index"]
    assert after["saved"].keys() == saved.keys()
    assert all(entry["digest"] for entry in after["saved"].values())


@pytest.mark.rare
def test_a_scheduler_ends_nodes_in_other_processes(selecting: Selecting) -> None:
    kedro = Path(sys.executable).with_name("kedro")
    words = [kedro, "run", "--runner", "ParallelRunner", "--params", selecting.options]
    variables = environment(AT_SELECT="wait", PYTHONPATH=str(selecting.path / "src"))
    process = subprocess.Popen(words, cwd=selecting.path, env=variables)
    try:
        while process.poll() is None and not list(selecting.data.glob("mini/index.json/*/*")):
            time.sleep(0.2)
        time.sleep(1)
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    finally:
        process.kill()
    assert [record["status"] for record in selecting.records()] == ["interrupted"]


def test_it_does_not_go_on_under_other_parameters(selecting: Selecting) -> None:
    selecting.do(run(selecting), AT_SELECT="kill")
    parameters = selecting.path / "conf/base/parameters.yml"
    before = parameters.read_text()
    parameters.write_text(before.replace("options: {}", "options: {depth: 2}"))
    code, text = selecting.do("anmi resume")
    assert code == 1
    assert 'cannot go on, since the parameter "options.depth" was 3 and is 2 now' in text
    parameters.write_text(before)
    documents = selecting.path / "collection" / "corpus.jsonl"
    documents.write_text((before := documents.read_text()) + '{"_id": "d9", "text": "new"}\n')
    code, text = selecting.do("anmi resume")
    assert code == 1
    assert (
        f"the files of {selecting.options} are not those that it began with: put them back" in text
    )
    documents.write_text(before)
    assert selecting.do("anmi resume")[0] == 0


def test_prune_keeps_what_is_referred_to(selecting: Selecting) -> None:
    whole, part = run(selecting), f"run --pipelines after --params {selecting.options}"
    for command in (whole, whole, part):
        selecting.do(command)
    _, second, third = (record["run_id"] for record in selecting.records())
    leftover = selecting.data / "mini" / "selection" / second / ".selection.x1.tmp"
    leftover.mkdir()
    _, text = selecting.do("anmi prune --keep 1 --dry-run")
    assert f"kept: {second} ({third} loaded from it)" in text
    assert "x1.tmp" not in text, "it may be somebody's"
    os.utime(leftover, (time.time() - 90_000,) * 2)
    before = selecting.versions()
    code, text = selecting.do("anmi prune --keep 1 --dry-run --json")
    told = json.loads(text)
    assert told["removed"] is False and told["kept"][second] == f"{third} loaded from it"
    assert len(told["removals"]) == len(KINDS) + 1 + 1, "versions, the record, the leftover"
    assert selecting.versions() == before
    code, text = selecting.do("anmi prune --keep 1 --yes")
    assert code == 0, text
    assert not leftover.exists()
    again = ("history.parquet", "report.html", "summary.json")
    assert selecting.versions() == {
        name: [second, third] if name in again else [second] for name in sorted(KINDS)
    }
    assert [record["run_id"] for record in selecting.records()] == [second, third]
    assert not list(selecting.data.rglob("*.tmp"))


@pytest.mark.rare
def test_a_record_that_cannot_be_read_or_is_gone_stops_prune(selecting: Selecting) -> None:
    for _ in range(2):
        selecting.do(run(selecting))
    before = selecting.versions()
    record = min((selecting.data / "runs").glob("*/run.json"))
    whole = record.read_text()
    for text in ("{", "", "{}", whole.replace('"finished"', '"finisned"'), None):
        record.write_text(text) if text is not None else record.unlink()
        code, told = selecting.do("anmi prune --keep 1 --yes")
        assert (
            code == 1
            and ("is no record of run" if text is not None else "is of a run without") in told
        )
        assert selecting.versions() == before
    tracked = json.loads(whole) | {"tracking_run": "m"}
    record.write_text(
        json.dumps({name: value for name, value in tracked.items() if name != "digest"})
    )
    (selecting.path / "conf/base/mlflow.yml").write_text("enabled: true\nexperiment: miniature\n")
    for content in (None, b"no database" * 999):
        if content is not None:
            (selecting.data / "tracking").mkdir(exist_ok=True)
            (selecting.data / "tracking" / "mlflow.db").write_bytes(content)
        code, told = selecting.do("anmi prune --keep 1 --yes")
        assert (
            code == 1
            and ("is not that of these runs" if content is None else "cannot be used") in told
        )
        assert selecting.versions() == before


def record(
    name: str, status: str = "finished", loaded: str | None = None, **more: Any
) -> dict[str, Any]:
    read = {} if loaded is None else {"corpus": {"version": loaded}}
    return {"run_id": name, "status": status, "loaded": read, "saved": {}, **more}


@given(st.data(), st.integers(1, 4))
def test_what_is_kept_has_all_that_it_was_made_from(data: st.DataObject, number: int) -> None:
    statuses = data.draw(
        st.lists(st.sampled_from(["finished", "failed", "killed", "running"]), max_size=8)
    )
    sources = [
        data.draw(st.none() | st.integers(0, i - 1)) if i else None for i in range(len(statuses))
    ]
    runs = [
        record(f"r{i}", status, None if source is None else f"r{source}")
        for i, (status, source) in enumerate(zip(statuses, sources, strict=True))
    ]
    reasons = kept(runs, number, ["r0"] if runs else [])
    for each in runs:
        if each["run_id"] in reasons:
            assert {found["version"] for found in each["loaded"].values()} <= reasons.keys()
    finished = [each["run_id"] for each in runs if each["status"] == "finished"]
    assert (
        set(finished[-number:]) | {each["run_id"] for each in runs if each["status"] == "running"}
        <= reasons.keys()
    )


def test_the_last_run_can_be_resumed_older_ones_that_failed_go_and_one_with_an_alias_stays() -> (
    None
):
    runs = [
        record("z", tracking_run="m"),
        record("a", "failed"),
        record("b"),
        record("c", "killed"),
    ]
    reasons = {"b": "among the newest", "c": "can be resumed", "z": "its model has an alias"}
    assert kept(runs, 1, ["m"]) == reasons


def test_prune_clears_the_store_of_what_was_not_used(project: Path) -> None:
    with Store(project / "store") as store:
        store.vectors("model", ["a", "b"], lambda part: np.ones((len(part), 96)))
    for days, removed, left in ((1, 0, 2), (0, 1, 0)):
        done = anmi("prune", "--keep", "1", "--yes", "--unused", str(days), "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["store"] == {"values": removed, "folders": 0}
        with Store(project / "store") as store:
            assert len(store) == left
