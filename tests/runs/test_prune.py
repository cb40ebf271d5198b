"""What may go and what not: references between runs, folders, leftovers, checkpoints, remote roots, aliases."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.locks import owner, process
from anmi.runs.manifests import Runs
from anmi.runs.places import Place
from anmi.runs.prune import kept, plan, remove

OLD, NEW = "2026-01-01T00.00.00.000Z", "2026-01-02T00.00.00.000Z"


def manifest(run_id: str, status: str = "finished", **more: Any) -> dict[str, Any]:
    start = run_id[:10] + "T00:00:00+00:00"
    return {"run_id": run_id, "status": status, "start": start, "loaded": {}, "pipelines": ["mining"], **more}


def write(root: str, name: str, text: str = "x") -> None:
    place = f"{root}/{name}"
    files, path = fsspec.core.url_to_fs(place)
    files.makedirs(path.rpartition("/")[0], exist_ok=True)
    files.pipe_file(path, text.encode())


def age(path: Path, days: float) -> None:
    for found in (path, *path.rglob("*")):
        os.utime(found, (time.time() - days * 86_400,) * 2)


@given(
    st.lists(
        st.tuples(st.sampled_from(["finished", "failed", "killed", "running"]), st.sets(st.integers(0, 9))), max_size=10
    ),
    st.integers(1, 4),
    st.sets(st.integers(0, 9)),
)
@settings(max_examples=200, deadline=None)
def test_nothing_that_a_kept_run_refers_to_goes(rows: list[Any], number: int, aliased: set[int]) -> None:
    runs = [
        manifest(f"r{i}", status, loaded={f"d{j}": f"r{j}" for j in read if j < i})
        for i, (status, read) in enumerate(rows)
    ]
    reasons = kept(runs, number, {f"r{i}" for i in aliased})
    by_id = {run["run_id"]: run for run in runs}
    for name in reasons:
        assert set(by_id.get(name, {"loaded": {}})["loaded"].values()) <= reasons.keys()
    finished = [run["run_id"] for run in runs if run["status"] == "finished"]
    assert set(finished[-number:]) <= reasons.keys()
    assert {run["run_id"] for run in runs if run["status"] == "running"} <= reasons.keys()
    assert {f"r{i}" for i in aliased} & by_id.keys() <= reasons.keys()
    # And no more than that: whatever is kept is kept for one of these reasons.
    for name, reason in reasons.items():
        if reason.endswith("refers to it"):
            assert name in by_id[reason.split()[0]]["loaded"].values()


def test_the_last_run_can_be_resumed_and_older_ones_that_failed_go() -> None:
    runs = [manifest("a", "failed"), manifest("b"), manifest("c", "killed")]
    assert kept(runs, 1, ()) == {"b": "among the newest", "c": "can be resumed"}
    assert "c" not in kept([*runs, manifest("d", resumed_from=None)], 1, ())


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_versions_and_manifests_go_and_the_rest_stays(tmp_path: Path, kind: str) -> None:
    root = str(tmp_path) if kind == "local" else f"memory://prune-{tmp_path.name}"
    for run_id in (OLD, NEW):
        write(root, f"03_primary/bm25_index/{run_id}/bm25_index/part")
        write(root, f"03_primary/bm25_index/{run_id}/bm25_index/_complete")
        write(root, f"07_model_output/metrics.parquet/{run_id}/metrics.parquet")
        write(root, f"runs/{run_id}/manifest.json", json.dumps(manifest(run_id)))
    write(root, f"mine/notes/{OLD}/notes")
    write(root, "logs/anmi.log")
    runs = Runs(root)
    artifacts = [f"{root}/03_primary/bm25_index", f"{root}/07_model_output/metrics.parquet"]
    removals = plan(runs, runs.all(), kept(runs.all(), 1, ()), artifacts)
    assert [(item.kind, item.name, item.bytes) for item in removals[:2]] == [
        ("version", f"03_primary/bm25_index/{OLD}", 2),
        ("version", f"07_model_output/metrics.parquet/{OLD}", 1),
    ]
    assert [item.name for item in removals[2:]] == [f"runs/{OLD}"]
    remove(removals)
    left = {file.name for file in Place(root).files()}
    assert left == {
        f"03_primary/bm25_index/{NEW}/bm25_index/part",
        f"03_primary/bm25_index/{NEW}/bm25_index/_complete",
        f"07_model_output/metrics.parquet/{NEW}/metrics.parquet",
        f"runs/{NEW}/manifest.json",
        f"mine/notes/{OLD}/notes",
        "logs/anmi.log",
    }
    remove(removals)


def test_a_running_run_is_known_by_its_process_and_not_by_what_it_says(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = process() | {"pid": child.pid}
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    rows = {
        "alive": mine | {"started": started},
        "another that got its number": mine | {"started": "1"},
        "of an earlier boot": mine | {"started": started, "boot": "earlier"},
        "of another host": mine | {"host": "elsewhere"},
    }
    stays = {
        name: Runs(str(tmp_path)).status(manifest(NEW, "running", process=row, updated=_now()))
        for name, row in rows.items()
    }
    assert stays == {
        "alive": "running",
        "another that got its number": "killed",
        "of an earlier boot": "killed",
        "of another host": "running",
    }
    silent = manifest(NEW, "running", process=rows["of another host"], updated="2020-01-01T00:00:00+00:00")
    assert Runs(str(tmp_path)).status(silent) == "killed", "after a week without a word"
    child.kill()
    child.wait()
    assert Runs(str(tmp_path)).status(manifest(NEW, "running", process=rows["alive"])) == "killed"


def _now() -> str:
    from anmi.runs.record import now

    return now()


def test_leftovers_go_once_nobody_can_be_writing_them(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    mine = owner()
    names = {
        "mine": f".table.{mine}.a1.tmp",
        "dead": f".table.{mine.partition('-')[0]}-{dead.pid}.a1.tmp",
        "elsewhere": ".table.00000000-1.a1.tmp",
        "elsewhere, old": ".table.00000000-1.b1.tmp",
    }
    for name in names.values():
        write(str(tmp_path), f"x/table/{name}/table")
    empty = tmp_path / "x" / ".empty.00000000-1.c1.tmp"
    empty.mkdir()
    age(tmp_path / "x/table" / names["elsewhere, old"], 2)
    age(empty, 2)
    removals = plan(Runs(str(tmp_path)), [], (), [])
    assert {Path(item.name).name for item in removals} == {names["dead"], names["elsewhere, old"], empty.name}


def test_checkpoints_and_work_that_nobody_goes_on_with(tmp_path: Path) -> None:
    store, root = tmp_path / "store", tmp_path / "data"
    for name in ("old", "held", "young", "named"):
        write(str(store), f"checkpoints/{name}/step-00000002/state.json")
        write(str(store), f"checkpoints/{name}/lock")
    for name in ("scifact/mined-aa/corpus/x/y", "scifact/cells/a.json", "scifact/cells/b.json", "table/v/table"):
        write(str(root), f"ablation/{name}")
    for path in (store / "checkpoints").iterdir():
        age(path, 0 if path.name == "young" else 3)
    for name in ("mined-aa", "cells/a.json"):
        age(root / "ablation" / "scifact" / name, 3)
    training = {"training": {"checkpoint": str(store / "checkpoints" / "named" / "step-00000002")}}
    known = [manifest(NEW, parameters=training)]
    with (store / "checkpoints" / "held" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        removals = plan(Runs(str(root)), known, {NEW}, [], ["ablation"], store)
        assert [(item.kind, item.name) for item in removals] == [
            ("checkpoint", "old"),
            ("ablation", "ablation/scifact/cells/a.json"),
            ("ablation", "ablation/scifact/mined-aa"),
        ]
        # A kept run that has not finished may need whatever was used since it began.
        open_run = manifest("2026-01-02T00.00.00.000Z", "failed")
        assert not plan(Runs(str(root)), [open_run], {open_run["run_id"]}, [], ["ablation"], store)
    remove(removals)
    assert sorted(path.name for path in (store / "checkpoints").iterdir()) == ["held", "named", "young"]


def test_a_model_with_an_alias_keeps_its_run(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from mlflow import MlflowClient

    from anmi.runs.prune import aliased_runs

    database = tmp_path / "tracking" / "mlflow.db"
    context: Any = SimpleNamespace(config_loader={"mlflow": {}})
    assert aliased_runs(context, str(tmp_path)) == set()
    assert not database.parent.exists(), "asking makes no database"
    database.parent.mkdir()
    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    client.create_registered_model("retriever")
    for tags in ({"run_id": OLD}, {"run_id": NEW}):
        client.create_model_version("retriever", str(tmp_path), tags=tags)
    client.set_registered_model_alias("retriever", "champion", "1")
    assert aliased_runs(context, str(tmp_path)) == {OLD}
    assert kept([manifest(NEW)], 1, {OLD})[OLD] == "its model has an alias"
