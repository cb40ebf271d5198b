"""What is deployed was trained on what was held out of the training that is measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from tests.e2e.conftest import write_chronicle

from anmi.files import measured
from anmi.search import HybridSearch

SPLITS = ("train",) * 3 + ("dev",) + ("test",) * 2
QUESTION = "What is known of the clocks of Oslo?"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_chronicle(tmp_path_factory.mktemp("final") / "chronicle", SPLITS)
    return f"collection=beir:{folder},encoder=corpus,training.options.epochs=1"


@pytest.fixture(scope="module")
def place(
    settings: str, new_place: Any, in_process: Callable[..., Result], tmp_path_factory: Any
) -> Any:
    """A run that trains again."""
    place = new_place(tmp_path_factory.mktemp("place"))
    done = in_process(place, "run", "--params", f"{settings},final=always")
    assert done.exit_code == 0, done.output + str(done.exception)
    return place


def final_table(place: Any, name: str) -> pd.DataFrame:
    table: pd.DataFrame = place.table("final", f"final.{name}.parquet")
    return table


def test_only_test_queries_are_held_out(place: Any) -> None:
    queries = place.table("ingestion", "queries.parquet").set_index("query_id").split
    qrels = place.table("ingestion", "qrels.parquet")
    labelled_dev = set(queries.index[queries == "dev"]) & set(qrels.query_id)
    rows = place.table("selection", "training_rows.parquet")
    final_rows = final_table(place, "training_rows")
    assert len(labelled_dev) == 8
    assert set(final_rows.query_id) == set(rows.query_id) | labelled_dev
    unmined = final_rows[final_rows.query_id.isin(labelled_dev)]
    assert unmined.negative_ids.map(len).eq(0).all()
    assert set(unmined.positive_id) == set(qrels.document_id[qrels.query_id.isin(labelled_dev)])
    assert list(final_rows.columns) == list(rows.columns)
    assert set(final_table(place, "queries").split) == {"train", "test"}
    new_documents = place.table("ingestion", "new_documents.parquet").document_id
    pseudo_queries = place.table("adaptation", "pseudo_queries.parquet")
    trained_on = [
        set(table.document_id[table.split == "train"])
        for table in (pseudo_queries, final_table(place, "pseudo_queries"))
    ]
    assert not trained_on[0] & set(new_documents)
    assert trained_on[1] - trained_on[0] == set(new_documents)
    assert len(new_documents) and final_table(place, "new_documents").empty


def test_another_model_is_deployed_with_the_measured_weights_and_scored_beside(
    place: Any, in_process: Callable[..., Result]
) -> None:
    (measured_folder,) = place.versions("evaluation", "measured_search")
    (folder,) = place.versions("final", "search_index")
    searches = [HybridSearch.load(path).settings for path in (measured_folder, folder)]
    assert searches[0]["weights"] == searches[1]["weights"] and "dense" in searches[1]["weights"]
    weights = [measured(path)["weights"] for path in (measured_folder, folder)]
    assert weights[0] != weights[1]
    results = place.json("reporting", "results.json")
    rows = pd.DataFrame(results["rows"]).set_index(["recipe", "bucket", "metric"])
    final_kinds, kinds = (set(rows.loc[system].index) for system in ("final", "hybrid"))
    # What is deployed was trained on the pseudo-queries that are measured beside few labels.
    assert final_kinds == {(bucket, metric) for bucket, metric in kinds if bucket != "pseudo"}
    assert rows.queries["final", "all", "ndcg@10"] == rows.queries["hybrid", "all", "ndcg@10"] == 16
    assert "more documents and 8 more labelled queries" in results["final"]
    printed = in_process(place, "anmi", "results").stdout
    assert "final" in printed and "8 more labelled queries" in printed
    (report,) = place.versions("reporting", "report.html")
    assert "8 more labelled queries" in report.read_text(encoding="utf-8")


def test_without_a_deployed_search_the_measured_one_is_asked(
    place: Any, settings: str, in_process: Callable[..., Result]
) -> None:
    (folder,) = place.versions("final", "search_index")
    before = measured(folder)
    shutil.rmtree(folder)
    (answer,) = json.loads(in_process(place, "anmi", "search", QUESTION, "--json").stdout)
    assert answer["hits"][0]["document_id"].startswith("clocks-Oslo")
    words = ["run", "--only-missing-outputs", "--params", f"{settings},final=always"]
    done = in_process(place, *words)
    assert done.exit_code == 0, done.output + str(done.exception)
    (again,) = place.versions("final", "search_index")
    assert measured(again)["weights"] == before["weights"]


def test_what_is_not_trained_again_is_linked(
    place: Any, settings: str, in_process: Callable[..., Result]
) -> None:
    words = ["run", "--pipelines", "final,reporting", "--params", f"{settings},final=never"]
    done = in_process(place, *words)
    assert done.exit_code == 0, done.output + str(done.exception)
    for first, deployed in (
        ("measured_model", "trained_model"),
        ("measured_search", "search_index"),
    ):
        source: Path = place.versions("", first)[-1]
        target: Path = place.versions("", deployed)[-1]
        assert measured(source) == measured(target)
        largest = max(source.rglob("*.safetensors"), key=lambda path: path.stat().st_size)
        assert (target / largest.relative_to(source)).samefile(largest)
    results = place.json("reporting", "results.json")
    assert results["final"] == "What is deployed is what was measured: final is never."
    assert "final" not in {row["recipe"] for row in results["rows"]}
