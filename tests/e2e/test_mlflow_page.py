"""A run as MLflow shows it: its own server over what a run left, opened in Chromium."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from anmi.datasets.model_registry import ModelRegistry, model_folder
from anmi.retrieval.sparse.model import inference_free

pytestmark = [pytest.mark.slow, pytest.mark.rare]
MODEL = "anmi-sparse"
# What MLflow's own pages say of themselves on a server without users.
OWN_NOISE = re.compile(r"ResizeObserver|404 \(Not Found\)|users/current")


@pytest.fixture(scope="module")
def database(whole_run: Any, tmp_path_factory: pytest.TempPathFactory, word_encoder: Callable[..., Any]) -> str:
    """A copy of the run's database, in which a sparse model is registered, too."""
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("mlflow")
    shutil.copy(whole_run.data / "tracking" / "mlflow.db", folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(tracking_uri=uri)
    place = client.create_experiment("anmi-beside", artifact_location=(folder / "artifacts").as_uri())
    run = client.create_run(place).info.run_id
    model = inference_free(word_encoder(["mean", "array"]), ["mean of an array", "array"])
    ModelRegistry(uri, run).register(MODEL, model_folder(model, folder / "model", {}, None), {})
    return uri


@pytest.fixture(scope="module")
def server(database: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = subprocess.Popen(
        [Path(sys.executable).with_name("mlflow"), "server", "--backend-store-uri", database, "--host", "127.0.0.1",
         "--port", str(port), "--workers", "1"],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while True:
            assert running.poll() is None
            assert time.monotonic() < deadline
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.3)
        yield f"http://127.0.0.1:{port}/"
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait()


def runs(database: str, experiment: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=database)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def page(run: Any) -> str:
    return f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"


def test_the_page_of_a_run_says_what_came_of_it(browsing: Any, server: str, database: str) -> None:
    (run,) = runs(database, "anmi-test")
    wrong: list[str] = []
    with browsing.opened({}, wrong.append) as tab:
        tab.goto(server + page(run))
        verdict = tab.get_by_text(re.compile(r"^On queries whose documents training never saw|has nDCG@10")).first
        verdict.wait_for()
        assert verdict.bounding_box()["y"] < 1000, "it is seen without going far down"
        assert tab.get_by_text(re.compile("anmi_2_1 · api_docs · nDCG@10")).first.is_visible(), "the name of the run"
        tab.get_by_text(f"Metrics ({len(run.data.metrics)})").wait_for()
        tab.get_by_text(f"Parameters ({len(run.data.params)})").wait_for()
        tab.goto(f"{server}{page(run)}/model-metrics")
        for section in ("all", "unlabelled", "training_log"):
            tab.get_by_text(section, exact=True).first.wait_for()
        tab.goto(f"{server}{page(run)}/artifacts")
        tab.get_by_text("report.html", exact=True).first.click()
        tab.frame_locator("iframe").first.get_by_role("heading", name="anmi_2_1 on api_docs").wait_for()
    assert [said for said in wrong if not OWN_NOISE.search(said)] == []


def test_only_what_nodes_read_is_a_parameter(database: str) -> None:
    (run,) = runs(database, "anmi-test")
    groups = {name.split(".")[0] for name in run.data.params}
    assert {"collection", "recipe", "encoder", "seed", "bm25", "training", "evaluation"} <= groups
    assert not groups & {"audit", "retrain"}
    assert {name.split(".")[1] for name in run.data.params if name.startswith("recipes.")} == {"anmi_2_1"}


def test_the_page_of_a_version_shows_its_signature(browsing: Any, server: str) -> None:
    wrong: list[str] = []
    with browsing.opened({}, wrong.append) as tab:
        tab.goto(f"{server}#/models/{MODEL}/versions/1")
        tab.get_by_text("Outputs (2)").wait_for()
    assert [said for said in wrong if not OWN_NOISE.search(said)] == []
