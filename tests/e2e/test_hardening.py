"""Negatives drawn from a graph, from files to the report, through the project's command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.rare
EVERY = 24


@pytest.fixture(scope="module")
def hardened(
    small_graph: Path, tmp_path_factory: pytest.TempPathFactory, new_place: Any, kedro: Any
) -> Any:
    place = new_place(tmp_path_factory.mktemp("hardened"))
    schedule = (
        "training.options.curriculum.step.warm_up=1,training.options.curriculum.step.latent_from=2"
    )
    done = kedro(
        "run",
        "--params",
        f"collection=kg:{small_graph},recipe=dnh_triggered,encoder=static,training.options.epochs=3,training.options.negatives=7,"
        f"{schedule}",
        data_root=place.data,
        store=place.store,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_a_run_draws_from_every_source_in_its_time(hardened: Any) -> None:
    log = hardened.table("training", "training_log.parquet")
    first, second, third = (log[log.stage == stage] for stage in (1, 2, 3))
    assert (first.share_random == 1).all()
    assert second.share_graph.mean() > 0.6 and (second.share_latent == 0).all()
    assert third.share_latent.mean() > 0.2


def test_what_was_drawn_is_counted_and_reported(hardened: Any) -> None:
    drawn = hardened.table("training", "drawn_negatives.parquet")
    rows = hardened.table("selection", "training_rows.parquet")
    assert rows.query_id.nunique() < 2000, "all queries are counted"
    assert drawn["count"].sum() == len(rows) * 3 * 7, "seven in each of three epochs"
    leak = hardened.json("reporting", "results.json")["false_negatives"]
    assert (leak["of"], leak["total"], leak["judge"]) == ("drawn", drawn["count"].sum(), {})
    assert leak["known"] > 0 and leak["low"] <= leak["share"] < leak["high"]


def test_variants_are_there_for_training_and_for_evaluation(hardened: Any) -> None:
    variants, qrels = (
        hardened.table("selection", "variants.parquet"),
        hardened.table("ingestion", "qrels.parquet"),
    )
    assert {"swap", "neighbour"} <= set(variants.kind)
    assert set(qrels.split[qrels.document_id.isin(variants.document_id)]) == {
        "train",
        "dev",
        "test",
    }
    found = hardened.json("evaluation", "knowledge_metrics.json")
    assert set(found) == {"zero_shot", "dnh_triggered"}
    for system in found.values():
        assert 0.5 < system["factuality_auc"] < 1 and 0.9 < system["linking_accuracy"] <= 1


def test_the_report_shows_what_was_drawn(hardened: Any) -> None:
    (report,) = hardened.versions("reporting", "report.html")
    text = report.read_text(encoding="utf-8")
    assert (
        "Where negatives came from" in text
        and "Facts: the own document against false variants" in text
    )


def test_documents_without_facts_are_refused_right_after_they_were_read(
    tmp_path: Path, new_place: Any, kedro: Any, shared_data: Path
) -> None:
    place = new_place(tmp_path)
    done = kedro(
        "run",
        "--params",
        f"collection=beir:{shared_data}/scifact,recipe=dnh_linear",
        data_root=place.data,
        store=place.store,
    )
    assert done.returncode != 0
    assert "state no facts" in " ".join((done.stdout + done.stderr).split())
    assert not (place.data / "03_primary").exists()
