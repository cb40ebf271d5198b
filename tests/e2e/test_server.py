"""``kedro server`` on loopback starts a retraining, and refuses a second one meanwhile."""

from __future__ import annotations

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.commands import free_port, serving

pytestmark = pytest.mark.rare


def sent(address: str, **body: Any) -> dict[str, Any]:
    """The server's answer to a request of a run."""
    request = urllib.request.Request(
        f"{address}/run", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=900) as response:
        answer: dict[str, Any] = json.loads(response.read())
    return answer


def test_retrain_is_started_over_http(tmp_path: Path) -> None:
    port = free_port()
    places = {"ANMI_DATA_ROOT": str(tmp_path / "data"), "ANMI_STORE": str(tmp_path / "store")}
    words = ("kedro", "server", "start", "--port", str(port), "--env", "test")
    with (
        serving(*words, port=port, log=tmp_path / "log", **places) as address,
        ThreadPoolExecutor() as threads,
    ):
        misspelt = sent(address, pipeline_names=["retrain"], params={"recipy": "anmi"})
        assert misspelt["status"] == "failure"
        assert 'did you mean "recipe"?' in misspelt["error"]["message"]
        params = {"recipe": "clean_top"}
        first = threads.submit(sent, address, pipeline_names=["retrain"], params=params)
        runs = tmp_path / "data" / "runs"
        while not list(runs.glob("*/run.json")):
            time.sleep(0.2)
        second = sent(address, pipeline_names=["retrain"])
        assert "is under way in this process" in second["error"]["message"]
        answer = first.result()
    assert answer["status"] == "success", answer
    (file,) = runs.glob("*/run.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    assert (record["run_id"], record["decision"]) == (answer["run_id"], "promoted")
    assert record["pipelines"] == ["retrain"]
