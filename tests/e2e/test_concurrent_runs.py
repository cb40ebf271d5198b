"""Two runs at once in one data root: each ends as if it had been alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

COMMAND = ("run", "--pipelines", "mining", "--params")
# Two recipes of other depths, so that no artifact of one can stand for one of the other.
FIRST = "ingestion.api_docs_queries=30,encoder=static,recipe=nv_retriever"
SECOND = "ingestion.api_docs_queries=24,encoder=static,recipe=naive_top,bm25.depth=30,dense.depth=12"


@pytest.fixture
def mine(in_process: Callable[..., Result]) -> Callable[[Any, str], None]:
    def run(place: Any, parameters: str) -> None:
        done = in_process(place, *COMMAND, parameters)
        assert done.exit_code == 0, done.output + str(done.exception)

    return run


def run_of(place: Any, recipe: str) -> dict[str, Any]:
    """Return the record of the one run of a recipe."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in (place.data / "runs").glob("*/run.json")]
    (run,) = [run for run in runs if run["parameters"]["recipe"] == recipe]
    return run


def made(place: Any, recipe: str) -> dict[str, bytes]:
    """Return what training reads of the run of a recipe, file by file."""
    version = run_of(place, recipe)["run_id"]
    folders = {name: place.data / "05_model_input" / name / version for name in ("selection", "training_rows.parquet")}
    files = {
        f"{name}/{file.relative_to(folder)}": file for name, folder in folders.items() for file in folder.rglob("*")
    }
    return {name: file.read_bytes() for name, file in files.items() if file.is_file()}


@pytest.mark.rare
def test_a_run_that_is_overtaken_mines_what_it_would_have_mined_alone(
    tmp_path: Path, new_place: Any, mine: Any, in_process: Any, project: Path
) -> None:
    alone = [new_place(tmp_path / name) for name in ("first", "second")]
    for place, parameters in zip(alone, (FIRST, SECOND), strict=True):
        mine(place, parameters)
    shared = type(alone[0])(tmp_path / "both", alone[0].store)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW", "ANMI", "KEDRO"))}
    log = tmp_path / "log"
    with log.open("w") as output:
        going = subprocess.Popen(
            [Path(sys.executable).with_name("kedro"), *COMMAND, FIRST, "--env", "test"],
            cwd=project,
            env={**inherited, "ANMI_DATA_ROOT": str(shared.data), "ANMI_STORE": str(shared.store)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while not shared.versions("bm25", "bm25_index"):
                assert going.poll() is None, log.read_text()
                time.sleep(0.01)
            # It rests while another run is begun and ended: overtaking does not depend on the machine.
            going.send_signal(signal.SIGSTOP)
            # A store of its own: the one that rests may hold the lock of the other.
            mine(type(shared)(shared.data, alone[1].store), SECOND)
            assert not shared.versions("selection", "selection")[1:], "the first one rests, and has not selected"
        finally:
            going.send_signal(signal.SIGCONT)
            code = going.wait(timeout=300)
    assert code == 0, log.read_text()
    assert made(shared, "nv_retriever") == made(alone[0], "nv_retriever")
    assert made(shared, "naive_top") == made(alone[1], "naive_top")
    for recipe in ("nv_retriever", "naive_top"):
        run = run_of(shared, recipe)
        assert run["loaded"] == {}, "it read only what it made"
    shown = in_process(shared, "anmi", "runs", "latest", "--json")
    assert json.loads(shown.stdout)["parameters"]["recipe"] == "naive_top", "that of the run that began last"
