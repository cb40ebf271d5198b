"""What is registered, behind MLflow's own server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from anmi.datasets.model_registry import model_folder
from anmi.retrieval.sparse.model import inference_free
from anmi.search.served import Terms

WORDS = ["mean", "of", "an", "array", "ignoring", "nan"]


@contextmanager
def answering(folder: Path) -> Iterator[Callable[[Any], Any]]:
    """``mlflow models serve`` of a folder, as a function from what is posted to the predictions."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    beside = Path(sys.executable).parent
    server = subprocess.Popen(
        [beside / "mlflow", "models", "serve", "-m", folder, "--env-manager", "local", "-h", "127.0.0.1", "-p",
         str(port)],
        env={**os.environ, "PATH": f"{beside}:{os.environ['PATH']}"}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"

    def ask(content: Any) -> Any:
        answer = httpx.post(f"{address}/invocations", json=content, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["predictions"]

    try:
        deadline = time.monotonic() + 300
        while True:
            assert server.poll() is None
            assert time.monotonic() < deadline
            try:
                if httpx.get(f"{address}/ping").status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.5)
        yield ask
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def example(folder: Path) -> Any:
    return json.loads((folder / "serving_input_example.json").read_text(encoding="utf-8"))


@pytest.mark.rare
@pytest.mark.slow
def test_mlflow_serves_a_sparse_model_by_its_example(tmp_path: Path, word_encoder: Callable[..., Any]) -> None:
    model = inference_free(word_encoder(WORDS), ["mean of an array", "nan of an array"])
    folder = model_folder(model, tmp_path / "model", {}, None)
    with answering(folder) as ask:
        document = ask(example(folder))
        query = ask(example(folder) | {"params": {"role": "query"}})
    known = Terms(model)
    assert document == known.predict(["mean of an array ignoring nan"]) != query
    assert query == known.predict(["mean of an array ignoring nan"], {"role": "query"})
