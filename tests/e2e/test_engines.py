"""Where the shards are worked on changes no byte of what is mined, and neither does a worker that dies over them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
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
    "documents in 3 ranges": "engine.kind=local,engine.document_shards=3",
    "ray 2": "engine.kind=ray,engine.workers=2",
    "ray 2, documents in 3 ranges": "engine.kind=ray,engine.workers=2,engine.document_shards=3",
}
# It asks for evidence, for the fused judge and for the cross-encoders.
RECIPE: Final = "clean_top"
PARAMETERS: Final = f"recipe={RECIPE},bm25.shard=8"
ARTIFACTS: Final = (
    "dense/document_embeddings.npy",
    "dense/candidates",
    "denoising/evidence",
    "denoising/judgments",
    "selection/selection",
    "selection/training_rows.parquet",
)
# A driver on a cluster of three machines, played by three sets of processes, each of which holds a third of the
# documents; one is killed while its worker works and it holds its documents. Only this process counts what it reads
# and writes of the bucket; the workers import the same class anew.
CLUSTER: Final = """
import json, sys, threading, time
from collections import Counter
from pathlib import Path
import psutil, ray
from kedro.framework.startup import bootstrap_project
from ray._private.ray_constants import PROCESS_TYPE_RAYLET
from ray.cluster_utils import Cluster
from anmi.buckets import RemoteFile
from anmi.cli import cli
from anmi.hooks.tracking import TrackingHooks

seen = Counter()
for name in ("read_bytes", "write_bytes"):
    def counted(self, *given, method=getattr(RemoteFile, name), name=name):
        if self.name.startswith("part-") and not self.kept.exists():
            seen[f"{name} {self.url.split('/')[-4]}"] += 1
        return method(self, *given)
    setattr(RemoteFile, name, counted)
TrackingHooks.before_pipeline_run = lambda *_, **__: None
head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 200_000_000}
cluster = Cluster(initialize_head=True, head_node_args=head)
nodes = [cluster.add_node(num_cpus=1, object_store_memory=200_000_000) for _ in range(2)]
raylet = nodes[1].all_processes[PROCESS_TYPE_RAYLET][0].process.pid
killed = []

def watch():
    while not killed:
        try:
            # Ray names an actor's process after its class, and the method that it is in.
            at = {process.cmdline()[0] for process in psutil.Process(raylet).children(recursive=True)}
            if "ray::ShardWorker.work" in at and any(name.startswith("ray::PartHolder") for name in at):
                killed.extend(sorted(at))
                cluster.remove_node(nodes[1], allow_graceful=False)
                return
        except (psutil.Error, IndexError):
            pass
        time.sleep(0.01)

threading.Thread(target=watch, daemon=True).start()
bootstrap_project(Path.cwd())
parameters = sys.argv[1] + f",engine.kind=ray,engine.ray.address={cluster.address}"
parameters += ",engine.workers=3,engine.document_shards=3"
cli(["run", "--env", "test", "--pipelines", "mining", "--params", parameters], standalone_mode=False)
print(json.dumps({"killed": killed, "seen": seen}), flush=True)
ray.shutdown()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory, new_place: Any, kedro: Any) -> Callable[..., dict[str, str]]:
    """Mine eight shards with an engine, and return the digest of each file that was made."""
    pytest.importorskip("ray")

    def run(engine: str, note: str = "") -> dict[str, str]:
        place = new_place(tmp_path_factory.mktemp(f"{engine}{note}".replace(" ", "_")))
        parameters = f"{PARAMETERS},{ENGINES[engine]}"
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
                    # Ray names an actor's process after its class, and the method that it is in.
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


@pytest.fixture
def bucket() -> Iterator[dict[str, str]]:
    """The environment of those who use an empty bucket of a real S3 server on this machine."""
    boto3 = pytest.importorskip("boto3")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    variables = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    variables |= {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not-so-secret"}
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS")]:
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            for _ in range(200):
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                time.sleep(0.1)
            boto3.client("s3").create_bucket(Bucket="mined")
            yield variables
    finally:
        server.terminate()
        server.wait()


def digests_in_bucket(prefix: str) -> dict[str, str]:
    """Return what :func:`digests` does, of a data root in the bucket."""
    import boto3

    found = {}
    for thing in boto3.resource("s3").Bucket("mined").objects.filter(Prefix=f"{prefix}/"):
        stage, name, _, *rest = thing.key.removeprefix(f"{prefix}/").split("/")
        if f"{stage}/{name}" in ARTIFACTS and rest[-1] != "_complete":
            found[f"{stage}/{name}/{'/'.join(rest)}"] = hashlib.sha256(thing.get()["Body"].read()).hexdigest()
    return found


def test_a_cluster_that_loses_a_machine_makes_the_same_bytes_in_a_bucket(
    bucket: dict[str, str], reference: dict[str, str], tmp_path: Path, new_place: Any, project: Path
) -> None:
    place = new_place(tmp_path)
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("RAY", "ANMI", "KEDRO", "MLFLOW"))}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    roots = {"ANMI_DATA_ROOT": "s3://mined/run", "ANMI_STORE": str(place.store), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, str(script), PARAMETERS],
        cwd=project, env=clean | token | roots | bucket, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    # Ray may have a last word of its own.
    (told,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"killed"')]
    assert {"ray::ShardWorker", "ray::PartHolder"} <= {name.partition(".")[0] for name in told["killed"]}, told
    assert "was lost" in done.stdout + done.stderr
    # The workers wrote all shards and read what they worked on. The driver reads a shard once where it fits something
    # on it, or makes rows of it.
    shards = sum("dense/candidates" in name for name in reference)
    read = {name.removeprefix("read_bytes "): count for name, count in told["seen"].items()}
    assert not [name for name in told["seen"] if name.startswith("write_bytes")], told
    assert max(read.values()) <= shards + 2, read
    assert read.get("evidence", 0) < shards, read
    assert digests_in_bucket("run") == reference
