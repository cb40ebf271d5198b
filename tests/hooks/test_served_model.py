"""What is registered, behind MLflow's own server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from anmi.datasets.model_registry import model_folder


@pytest.mark.rare
@pytest.mark.slow
def test_mlflow_serves_a_registered_model_by_its_example(tmp_path: Path, word_encoder: Callable[..., Any]) -> None:
    model = word_encoder(["mean", "of", "an", "array"])
    folder = model_folder(model, tmp_path / "model", {}, None)
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
        content = (folder / "serving_input_example.json").read_text(encoding="utf-8")
        headers = {"content-type": "application/json"}
        answer = httpx.post(f"{address}/invocations", content=content, headers=headers, timeout=60)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    assert answer.status_code == 200
    np.testing.assert_array_equal(
        np.array(answer.json()["predictions"], np.float32), model.encode(["mean of an array ignoring nan"])
    )
