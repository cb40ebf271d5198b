"""Registries of a real MLflow: a database, and a server on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a database; making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('registry')}/mlflow.db"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that keeps the files of models itself."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            until = time.monotonic() + 90
            while True:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, (folder / "log").read_text()
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                        break
                except OSError:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            # Asked to end, it takes many seconds to, and nothing of it is needed any more.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="session")
def open_registry() -> Callable[[str], Any]:
    """Open a registry with a run of its own."""

    def opened(uri: str) -> Any:
        from mlflow import MlflowClient

        from anmi.datasets.model_registry import ModelRegistry

        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name("tests")
        place = (
            None
            if "://" in uri and not uri.startswith("sqlite")
            else Path(uri.removeprefix("sqlite:///")).parent
        )
        experiment = (
            found.experiment_id
            if found
            else client.create_experiment(
                "tests", artifact_location=place and (place / "files").as_uri()
            )
        )
        return ModelRegistry(uri, client.create_run(experiment).info.run_id)

    return opened


@pytest.fixture
def registry(database: str, open_registry: Callable[[str], Any]) -> Any:
    """A registry in the database."""
    return open_registry(database)


@pytest.fixture(scope="session")
def new_folder(word_encoder: Callable[..., Any]) -> Callable[..., Path]:
    """Write a small model as it is registered."""

    def make(path: Path, seed: int = 0, profile: dict[str, Any] | None = None) -> Path:
        from anmi.datasets.model_registry import model_folder

        model = word_encoder(["night", "day"], seed=seed)
        return model_folder(model, path, {"prompt_query": "", "max_length": None}, profile)

    return make
