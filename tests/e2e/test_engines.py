"""Where the shards are worked on changes no byte of what is mined."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.rare

ENGINES: Final = {
    "as it is": "engine.kind=local",
    "local 1": "engine.kind=local,engine.workers=1",
    "local 2": "engine.kind=local,engine.workers=2",
}
# It asks for evidence, for the fused judge and for the cross-encoders.
RECIPE: Final = "denoising"
PARAMETERS: Final = f"recipe={RECIPE},bm25.shard=8"
ARTIFACTS: Final = (
    "03_primary/document_embeddings.npy",
    "03_primary/candidates",
    "04_feature/evidence",
    "04_feature/judgments",
    "05_model_input/selection",
    "05_model_input/training_rows.parquet",
)
# A driver on a cluster of two machines, played by two sets of processes.
CLUSTER: Final = """
import sys
from pathlib import Path
import ray
from kedro.framework.startup import bootstrap_project
from ray.cluster_utils import Cluster
from anmi.cli import cli

memory = {"object_store_memory": 200_000_000}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False} | memory)
cluster.add_node(num_cpus=2, **memory)
bootstrap_project(Path.cwd())
parameters = sys.argv[1] + f",engine.kind=ray,engine.ray.address={cluster.address}"
cli(["run", "--env", "test", "--pipelines", "mining", "--params", parameters], standalone_mode=False)
ray.shutdown()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def mined(
    tmp_path_factory: pytest.TempPathFactory, new_place: Any, kedro: Any
) -> Callable[..., dict[str, str]]:
    """Mine eight shards with an engine, and return the digest of each file that was made."""

    def run(engine: str) -> dict[str, str]:
        place = new_place(tmp_path_factory.mktemp(engine.replace(" ", "_")))
        parameters = f"{PARAMETERS},{ENGINES[engine]}"
        done = kedro(
            "run",
            "--pipelines",
            "mining",
            "--params",
            parameters,
            data_root=place.data,
            store=place.store,
        )
        assert done.returncode == 0, done.stdout + done.stderr
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
    assert sum("05_model_input/selection" in name for name in found) >= 8, (
        "one shard would not show much"
    )
    return found


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "local 1"])
def test_engines_make_the_same_bytes(engine: str, mined: Any, reference: dict[str, str]) -> None:
    assert mined(engine) == reference


def test_a_cluster_of_two_machines_makes_the_same_bytes(
    reference: dict[str, str], tmp_path: Path, new_place: Any, project: Path
) -> None:
    pytest.importorskip("ray")
    place = new_place(tmp_path)
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RAY", "ANMI", "KEDRO", "MLFLOW"))
    }
    token = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    roots = {"ANMI_DATA_ROOT": str(place.data), "ANMI_STORE": str(place.store), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, str(script), PARAMETERS],
        cwd=project,
        env=clean | token | roots,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert digests(place.data) == reference
