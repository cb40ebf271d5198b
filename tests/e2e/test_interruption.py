"""Runs killed by SIGKILL in every stage and resumed, and disks that take no more: the end is the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Commands, environment
from tests.hooks.selecting import Selecting, write_selecting

from anmi.pipeline_registry import STAGES


@pytest.fixture(scope="module")
def kills(
    tmp_path_factory: pytest.TempPathFactory, static_models: Path, project: Path
) -> dict[str, Any]:
    """What `benchmarks/kills.py` counts, one kill a stage."""
    result = tmp_path_factory.mktemp("kills") / "kills.json"
    words = ["benchmarks/kills.py", "--stages", "--models", str(static_models)]
    done = subprocess.run(
        [sys.executable, *words, "--result", str(result)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        env=environment(),
    )
    assert result.exists(), done.stdout + done.stderr
    return dict(json.loads(result.read_text()))


@pytest.mark.rare
def test_a_run_killed_in_any_stage_is_resumed_to_the_same_end(kills: dict[str, Any]) -> None:
    rows = {row["stage"]: row for row in kills["rows"]}
    assert set(rows) == set(STAGES)
    assert [row for row in kills["rows"] if not row["killed"]] == []
    assert [row for row in kills["rows"] if not row["equal"]] == []
    assert kills["kills_tried"] == kills["kills_resumed_equal"] == len(kills["rows"])
    left = {stage: rows[stage]["left"] for stage in STAGES}
    # The corpus is asked as soon as it is read.
    later = [stage for stage in STAGES[STAGES.index("denoising") :] if stage != "adaptation"]
    in_order = [left[stage] for stage in later]
    # What was saved before the kill is not made again.
    assert in_order == sorted(in_order, reverse=True)
    assert left["reporting"] == 1
    assert left["ingestion"] > max(left["bm25"], left["dense"]) > left["denoising"]
    assert {row["how"] for row in kills["rows"]} >= {
        "middle",
        "written",
        "visible",
        "checkpoint",
        "store",
    }


@pytest.fixture
def selecting(tmp_path: Path, commands: Commands) -> Selecting:
    return write_selecting(tmp_path, commands)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[Path, str], None]]:
    """Mount a file system of its own on a folder."""
    mounted = []

    def mount(place: Path, options: str) -> None:
        place.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
        mounted.append(place)

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


@pytest.mark.rare
def test_on_a_full_disk_a_run_says_so_and_goes_on_when_there_is_room(
    selecting: Selecting, commands: Commands, mount: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = write_selecting(tmp_path_factory.mktemp("whole"), commands)
    whole.do(f"run --params {selecting.options}")
    ended = set()
    # From no room at all to room for nearly all, so that another write fails each time.
    for pages in range(0, 24, 3):
        mount(selecting.data, "size=1m")
        ballast = selecting.data / "ballast"
        ballast.write_bytes(bytes(2**20 - pages * 4096))
        code, text = selecting.do(f"run --params {selecting.options}")
        if code:
            told = text.rpartition("Error: ")[2]
            assert code == 1, text
            assert "disk is full" in told or "No space left" in told, text
            assert str(selecting.data) in told
            assert "Traceback" not in text
            assert "Logging error" not in text
            newest = selecting.newest() if (selecting.data / "mini").exists() else {}
            assert newest.items() <= whole.newest().items(), "what can be seen is whole"
            ballast.unlink()
            ended.add(told.split(" cannot be")[0].rpartition("/")[2])
            if any(selecting.records()):
                code, text = selecting.do("anmi resume")
                assert code == 0, text
                assert selecting.newest() == whole.newest()
        else:
            assert selecting.newest() == whole.newest()
        subprocess.run(["umount", str(selecting.data)], check=True)
    assert len(ended) >= 2, "different writes failed"


def test_where_nothing_can_be_written_no_node_runs(selecting: Selecting, mount: Any) -> None:
    mount(selecting.data, "size=1m,ro")
    code, text = selecting.do(f"run --params {selecting.options}")
    assert code == 1
    told = text.rpartition("Error: ")[2]
    assert "Read-only file system): set ANMI_DATA_ROOT" in told
    assert str(selecting.data) in told
    assert "Traceback" not in text
    assert "1/5" not in text
    (selecting.path / "conf/base/mlflow.yml").write_text(
        f"enabled: true\ntracking_uri: sqlite:///{selecting.data}/t.db\n"
    )
    subprocess.run(["umount", str(selecting.data)], check=True)
    mount(selecting.data, "size=128k")
    code, text = selecting.do(f"run --params {selecting.options}")
    assert code == 1
    assert "the tracking store" in text.rpartition("Error: ")[2]
    assert "Traceback" not in text
