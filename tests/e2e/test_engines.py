"""Where the shards are worked on changes no byte of what is mined."""

from __future__ import annotations

import hashlib
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem
from tests.commands import environment

from anmi.buckets import COMPLETE

pytestmark = pytest.mark.rare

ENGINES: Final = {"as it is": 0, "local 1": 1, "local 2": 2}
# It asks for evidence, for the fused judge and for the cross-encoders.
PARAMETERS: Final = "recipe=denoising,bm25.shard=8"
ARTIFACTS: Final = (
    "03_primary/document_embeddings.npy",
    "03_primary/candidates",
    "04_feature/evidence",
    "04_feature/judgments",
    "05_model_input/selection",
    "05_model_input/training_rows.parquet",
)
# Of two machines, played by processes; workers note what they open, and a third piece loses the second.
CLUSTER: Final = """
import os, sys, psutil, ray
from pathlib import Path
from kedro.framework.startup import bootstrap_project
from ray.cluster_utils import Cluster
from anmi.cli import cli
from anmi.engine import shards

parameters, trace, is_lost = sys.argv[1], sys.argv[2], sys.argv[3] == "lost"
memory = {"object_store_memory": 200_000_000}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False} | memory)
second = cluster.add_node(num_cpus=2, **memory).node_id
work = shards._from_ray

def from_ray(function, item, threads):
    if not hasattr(sys, "pieces"):
        sys.pieces = 0
        file = os.open(f"{trace}/opened-{os.getpid()}", os.O_WRONLY | os.O_CREAT)
        places = {"open": 0, "socket.connect": 1}
        note = lambda event, args: os.write(file, f"{args[places[event]]}\\n".encode())
        sys.addaudithook(lambda event, args: event in places and note(event, args))
    sys.pieces += 1
    if ray.get_runtime_context().get_node_id() == second:
        Path(trace, "second").touch()
        if is_lost and sys.pieces == 3:
            own = psutil.Process()
            others = {*own.parent().children(recursive=True)} - {own}
            for process in (own.parent(), *others, own):
                process.kill()
    return work(function, item, threads)

shards._from_ray = from_ray
bootstrap_project(Path.cwd())
parameters += f",engine.kind=ray,engine.ray.address={cluster.address}"
cli(["run", "--env", "test", "--pipelines", "mining", "--params", parameters], standalone_mode=False)
assert sum(node["Alive"] for node in ray.nodes()) == 2 - is_lost
ray.shutdown(), cluster.shutdown()
"""


@pytest.fixture(scope="module")
def mined(
    tmp_path_factory: pytest.TempPathFactory, new_place: Any, kedro: Any
) -> Callable[..., dict[str, str]]:
    """Mine eight shards with an engine, and return the digest of each file that was made."""

    def run(engine: str) -> dict[str, str]:
        place = new_place(tmp_path_factory.mktemp(engine.replace(" ", "_")))
        parameters = f"{PARAMETERS},engine.kind=local,engine.workers={ENGINES[engine]}"
        words = ["run", "--pipelines", "mining", "--params", parameters]
        done = kedro(*words, data_root=place.data, store=place.store)
        assert done.returncode == 0, done.stdout + done.stderr
        return digests(place.data)

    return run


def digests(data: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of the artifacts in question, under names without the version."""
    found = {}
    for artifact in ARTIFACTS:
        (version,) = (data / artifact).iterdir()
        paths = sorted(version.rglob("*"))
        files = [path for path in paths if path.is_file() and path.name != COMPLETE]
        assert files, artifact
        for path in files:
            name = f"{artifact}/{path.relative_to(version).as_posix()}"
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="module")
def reference(mined: Callable[..., dict[str, str]]) -> dict[str, str]:
    found = mined("local 1")
    assert sum("05_model_input/selection" in name for name in found) >= 8, "few shards"
    return found


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "local 1"])
def test_engines_make_the_same_bytes(engine: str, mined: Any, reference: dict[str, str]) -> None:
    assert mined(engine) == reference


@pytest.mark.parametrize("second", ["stays", "lost"])
def test_a_cluster_of_two_machines_makes_the_same_bytes(
    second: str, reference: dict[str, str], tmp_path: Path, new_place: Any, project: Path
) -> None:
    pytest.importorskip("ray")
    place = new_place(tmp_path)
    (trace := tmp_path / "trace").mkdir()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    address = server.get_host_and_port()
    variables = environment(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(32),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_niceness="0",
        ANMI_DATA_ROOT=f"s3://{second}/data",
        ANMI_STORE=str(place.store),
        MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/mlflow.db",
        AWS_ACCESS_KEY_ID="any",
        AWS_SECRET_ACCESS_KEY="any",
        AWS_ENDPOINT_URL="http://{}:{}".format(*address),
    )
    storage = S3FileSystem(key="any", secret="any", endpoint_url=variables["AWS_ENDPOINT_URL"])
    try:
        storage.mkdir(second)
        command = [sys.executable, "-c", CLUSTER, PARAMETERS, str(trace), second]
        streams = {"capture_output": True, "text": True}
        done = subprocess.run(command, cwd=project, env=variables, check=False, **streams)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        storage.get(f"{second}/data", str(place.data), recursive=True)
    finally:
        server.stop()
    assert digests(place.data) == reference
    assert (trace / "second").exists()
    noted = {line for file in trace.glob("opened-*") for line in file.read_text().splitlines()}
    of_store = [line for line in noted if line.startswith(str(place.store))]
    assert of_store and all(line.startswith(f"{place.store}/models/") for line in of_store)
    assert not [line for line in noted if str(address) in line], "a worker asked the bucket"
