"""Where the shards are worked on changes no byte of what is mined, and neither does a worker that dies over them."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.rare]

ENGINES: Final = {
    "as it is": "engine.kind=local",
    "local 1": "engine.kind=local,engine.workers=1",
    "local 2": "engine.kind=local,engine.workers=2",
    "ray 2": "engine.kind=ray,engine.workers=2",
}
# It asks for evidence, for the fused judge and for the cross-encoders.
RECIPE: Final = "clean_top"
ARTIFACTS: Final = (
    "dense/document_embeddings.npy",
    "dense/candidates",
    "denoising/evidence",
    "denoising/judgments",
    "selection/selection",
    "selection/training_rows.parquet",
)


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory, new_place: Any, kedro: Any) -> Callable[..., dict[str, str]]:
    """Mine eight shards with an engine, and return the digest of each file that was made."""
    pytest.importorskip("ray")

    def run(engine: str, note: str = "") -> dict[str, str]:
        place = new_place(tmp_path_factory.mktemp(f"{engine}{note}".replace(" ", "_")))
        parameters = f"recipe={RECIPE},bm25.shard=8,{ENGINES[engine]}"
        done = kedro("run", "--pipelines", "mining", "--params", parameters, data_root=place.data, store=place.store)
        assert done.returncode == 0, done.stdout + done.stderr
        if note:
            assert "was lost" in done.stdout + done.stderr, "the run is to tell that a worker was lost"
        return digests(place.data)

    return run


def digests(data: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of the artifacts in question, under names without the version."""
    found = {}
    for artifact in ARTIFACTS:
        (version,) = (data / artifact).iterdir()
        files = sorted(path for path in version.rglob("*") if path.is_file())
        assert files, artifact
        for path in files:
            name = f"{artifact}/{path.relative_to(version).as_posix()}"
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="module")
def reference(mined: Callable[..., dict[str, str]]) -> dict[str, str]:
    found = mined("local 1")
    assert sum("selection/selection" in name for name in found) >= 8, "one shard would not show much"
    return found


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "local 1"])
def test_engines_make_the_same_bytes(engine: str, mined: Any, reference: dict[str, str]) -> None:
    assert mined(engine) == reference


@contextmanager
def first_worker_killed() -> Iterator[list[int]]:
    """Kill the first worker of Ray below this process that is seen at work; yield the list it will be in."""
    killed: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not killed and not ended.is_set():
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    # Ray names an actor's process after the method that it is in.
                    if process.name().startswith("ray::ShardWorker.work"[:15]) and "work" in process.cmdline()[0]:
                        os.kill(process.pid, signal.SIGKILL)
                        killed.append(process.pid)
                        break
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def test_a_worker_killed_in_the_middle_changes_nothing(mined: Any, reference: dict[str, str]) -> None:
    with first_worker_killed() as killed:
        found = mined("ray 2", ", one killed")
    assert killed
    assert found == reference
