"""``kedro anmi serve`` as a user has it: over a real run, to a run that knows what was marked."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.commands import environment
from tests.e2e.conftest import Place

pytest.importorskip("fastapi", reason='the page needs the extra "serve"')
CSRF = re.compile(r'<meta name="csrf" content="([^"]+)">')
PAIR = re.compile(r'data-query="([^"]+)" data-document="([^"]+)"')


def copied(place: Place, folder: Path) -> Place:
    """Other tests look at the run, too, and nobody is to find marks beside it."""
    shutil.copytree(place.data, folder / "data", ignore=shutil.ignore_patterns("tracking"))
    return Place(folder / "data", place.store)


def start(place: Place, project: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    kedro = str(Path(sys.executable).with_name("kedro"))
    process = subprocess.Popen(
        [kedro, "anmi", "serve", "--port", "0", "--env", "test", *words],
        cwd=project,
        text=True,
        env=environment(
            ANMI_DATA_ROOT=str(place.data), ANMI_STORE=str(place.store), PYTHONUNBUFFERED="1"
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("http://"):
            return process, line.strip()
    raise AssertionError(process.communicate()[1])


@pytest.mark.rare
def test_a_run_is_looked_at_and_marked_and_the_server_ends_well(
    whole_run: Place, tmp_path: Path, project: Path
) -> None:
    place = copied(whole_run, tmp_path)
    process, address = start(place, project, "--as", "asha")
    try:
        with httpx.Client(base_url=address) as page:
            found = page.get("/", params={"q": "mean of an array"}).text
            # BM25, the encoder before training, the trained one, and the hybrid.
            assert found.count("<section") == 4
            queries = page.get("/queries").text
            first = re.search(r'href="(/query\?id=[^"]+)"', queries)
            assert first is not None
            text = page.get(first[1]).text
            csrf, pair = CSRF.search(text), PAIR.search(text)
            assert csrf is not None and pair is not None
            body = {"query_id": pair[1], "document_id": pair[2], "relevance": 1}
            answer = page.post("/api/mark", json=body, headers={"x-anmi-csrf": csrf[1]})
            assert answer.json()["by"] == "asha"
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    (file,) = (place.data / "01_raw" / "marks").glob("*.jsonl")
    assert file.read_text(encoding="utf-8").count("\n") == 1


@pytest.mark.rare
def test_questions_typed_into_a_browser_are_the_labels_of_the_next_run(
    new_place: Callable[[Path], Place],
    shared_data: Path,
    tmp_path: Path,
    project: Path,
    kedro: Callable[..., Any],
) -> None:
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    lines = (
        (shared_data / "medquad" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[::130]
    )
    for number, line in enumerate(lines):
        (tmp_path / f"{number}.txt").write_text(json.loads(line)["text"][:2000], encoding="utf-8")
    place = new_place(tmp_path / "place")
    words = ["run", "--params", f"collection=docs:{tmp_path}/*.txt"]
    assert kedro(*words, data_root=place.data, store=place.store).returncode == 0
    process, address = start(place, project)
    try:
        with api.sync_playwright() as player:
            browser = player.chromium.launch(
                executable_path=chromium, args=["--no-sandbox"] * (os.geteuid() == 0)
            )
            page = browser.new_page()
            for number in range(20):
                page.goto(address)
                if number:
                    page.locator("li.item a").first.click()
                else:
                    page.fill("#q", "How is kidney failure treated?")
                    page.keyboard.press("Enter")
                page.wait_for_selector("[value=test]:checked")
                page.check(f"[value={'test' if number % 5 == 4 else 'train'}]")
                page.locator("[data-mark='1']").first.click()
                page.wait_for_selector("[aria-pressed=true]")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert kedro(*words, data_root=place.data, store=place.store).returncode == 0
    queries = place.table("ingestion", "queries.parquet")
    assert queries.split.value_counts().to_dict() == {"train": 16, "test": 4}
    assert queries.text[0] == "How is kidney failure treated?"
    results = place.json("reporting", "results.json")
    assert results["marks"].startswith("20 pairs marked as relevant, 0 as not relevant; 20 quest")
    # Four are few, so pseudo-queries are measured beside them.
    assert results["test_queries"] == "labels_and_pseudo_queries"
    assert len(place.table("selection", "training_rows.parquet"))


def test_nothing_to_serve_is_one_sentence(tmp_path: Path, in_process: Callable[..., Any]) -> None:
    place = Place(tmp_path / "data", tmp_path / "store")
    done = in_process(place, "anmi", "serve", "--port", "0")
    assert done.exit_code == 1
    assert 'there is no "selection" yet' in done.output


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, in_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = in_process(Place(tmp_path / "data", tmp_path / "store"), "anmi", "serve")
    assert done.exit_code == 1
    assert 'pip install "anmi-retrieval[serve]"' in done.output


def test_a_port_that_is_taken_is_said(whole_run: Place, in_process: Callable[..., Any]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = in_process(whole_run, "anmi", "serve", "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 1
    assert "choose another --port" in done.output
