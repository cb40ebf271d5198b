"""The picture of the pipeline."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project

LAYERS = {"collection", "candidates", "judgments", "negatives", "model", "evaluation", "report"}


def free_port() -> int:
    """Return a free port below 49152, above which kedro-viz refuses to listen."""
    for port in range(20_000 + os.getpid() % 20_000, 49_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port between 20,000 and 49,000")


@pytest.fixture(scope="module")
def graph(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``kedro viz`` draws; the server that shows it is ended as soon as the graph is saved."""
    folder = tmp_path_factory.mktemp("viz")
    command = [str(Path(sys.executable).with_name("kedro")), "viz", "run", "--no-browser"]
    environment = {**os.environ, "ANMI_DATA_ROOT": str(folder / "data"), "ANMI_STORE": str(folder / "store")}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--save-file", str(folder / "saved"), "--port", str(free_port())],
            cwd=project, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            until = time.monotonic() + 120
            # The run status is the last file to be written.
            while not (folder / "saved" / "api" / "run-status").exists() and time.monotonic() < until:
                assert server.poll() in (None, 0), (folder / "log").read_text()
                time.sleep(0.2)
            time.sleep(0.5)
        finally:
            # It ends by itself where nobody holds its console.
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=30)
    found: dict[str, Any] = json.loads((folder / "saved" / "api" / "main").read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
@pytest.mark.rare
def test_every_node_and_artifact_is_drawn_in_a_layer(graph: dict[str, Any], project: Path) -> None:
    bootstrap_project(project)
    whole = pipelines["__default__"]
    tasks = {node["name"] for node in graph["nodes"] if node["type"] == "task"}
    assert tasks == {node.name for node in whole.nodes}
    drawn = {node["name"]: node for node in graph["nodes"] if node["type"] == "data"}
    assert {name for name in whole.datasets() if not name.startswith("params:")} == drawn.keys()
    assert {node["layer"] for node in drawn.values()} == LAYERS
    assert set(graph["layers"]) == LAYERS
    order = [layer for layer in graph["layers"] if layer in ("collection", "judgments", "model", "report")]
    assert order == ["collection", "judgments", "model", "report"]


@pytest.mark.slow
@pytest.mark.rare
def test_every_pipeline_can_be_chosen(graph: dict[str, Any], project: Path) -> None:
    bootstrap_project(project)
    assert {pipeline["id"] for pipeline in graph["pipelines"]} == set(pipelines)
