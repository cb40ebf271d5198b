"""A run whose search may have every part: what is measured, what is deployed, and where a user reads of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.e2e.conftest import Place, write_chronicle

SYSTEMS = ["bm25", "zero_shot", "anmi", "network", "bm25_and_network", "hybrid"]


def settings_of(place: Place) -> str:
    return f"collection=beir:{place.data.parent}/collection,encoder=corpus,search.parts=auto"


@pytest.fixture(scope="module")
def place(
    new_place: Callable[[Path], Place],
    in_process: Callable[..., Result],
    tmp_path_factory: pytest.TempPathFactory,
) -> Place:
    folder = tmp_path_factory.mktemp("parts")
    write_chronicle(folder / "collection", ("train", "dev", "test"))
    made = new_place(folder)
    done = in_process(made, "run", "--params", settings_of(made))
    assert done.exit_code == 0, done.output + str(done.exception)
    return made


def test_every_part_is_measured_and_those_with_a_weight_are_deployed(place: Place) -> None:
    metrics = place.table("evaluation", "metrics.parquet")
    assert set(metrics.recipe) == set(SYSTEMS), "the encoder before training is the corpus's own"
    for name in ("dev_part_runs.parquet", "part_runs.parquet"):
        assert set(place.table("evaluation", name).part) == {"bm25", "dense", "corpus", "network"}
    (folder,) = place.versions("evaluation", "search_index")
    settings = json.loads((folder / "hybrid.json").read_text(encoding="utf-8"))
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(settings["weights"])
    assert [part["name"] for part in settings["parts"]] == list(settings["weights"])
    assert all(weight >= 0.05 for weight in settings["weights"].values())
    assert set(settings["untrained"]) == {"bm25", "network"}
    assert set(settings["fit"]["weights"]) == {"bm25", "dense", "corpus", "network"}


def test_hits_say_what_each_part_ranks(place: Place, in_process: Callable[..., Result]) -> None:
    words = ["anmi", "search", "What is known of the clocks of Oslo?", "--json"]
    (answer,) = json.loads(in_process(place, *words).stdout)
    weights = place.json("reporting", "results.json")["search"]["weights"]
    assert {tuple(hit["ranks"]) for hit in answer["hits"]} == {tuple(weights)}
    assert answer["hits"][0]["document_id"].startswith("clocks-Oslo")
    alone = in_process(place, *words, "--system", "bm25")
    ranks = {hit["document_id"]: hit["rank"] for hit in json.loads(alone.stdout)[0]["hits"]}
    told = {hit["document_id"]: hit["ranks"]["bm25"] for hit in answer["hits"]}
    shared = ranks.keys() & told.keys()
    assert shared and {name: told[name] for name in shared} == {
        name: ranks[name] for name in shared
    }


def test_results_and_report_show_what_each_part_weighs_brings_and_costs(
    place: Place, in_process: Callable[..., Result]
) -> None:
    search: dict[str, Any] = place.json("reporting", "results.json")["search"]
    assert search["weights"].keys() == search["megabytes"].keys() <= search["milliseconds"].keys()
    assert all(size > 0 for size in search["megabytes"].values())
    printed = in_process(place, "anmi", "results").output
    (report,) = place.versions("reporting", "report.html")
    for text in (printed, report.read_text(encoding="utf-8")):
        shown = text.partition("Parts of the search")[2]
        assert shown and "BM25 + network, untrained" in text
        for name, weight in search["weights"].items():
            assert f"{weight:.2f}" in shown, name


def test_parts_are_made_again_only_for_what_reads_them(
    place: Place, in_process: Callable[..., Result]
) -> None:
    words = ["run", "--only-missing-outputs", "--params", settings_of(place)]
    assert "nothing is missing" in in_process(place, *words).output
    (times,) = place.versions("evaluation", "part_milliseconds.json")
    times.unlink()
    done = in_process(place, *words)
    assert done.exit_code == 0, done.output + str(done.exception)
    record = json.loads(max((place.data / "runs").glob("*/run.json")).read_text(encoding="utf-8"))
    made = {node["node"] for node in record["nodes"]}
    assert made == {"evaluation.make_parts", "evaluation.time_parts"}
