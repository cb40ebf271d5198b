"""The whole way on the built-in collection, as a user goes it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import lmdb
import pandas as pd
import pytest
from kedro.framework.project import pipelines

from anmi.corpus.related import copies

ROW_KEYS = {
    "collection",
    "encoder",
    "recipe",
    "seed_count",
    "bucket",
    "queries",
    "metric",
    "value",
    "low",
    "high",
}
RESULT_KEYS = {
    "collection",
    "recipe",
    "run",
    "date",
    "marks",
    "machine",
    "versions",
    "prompts",
    "rows",
    "comparisons",
    "funnel",
    "expected",
    "false_negatives",
    "paths",
}
METRICS = ("ndcg", "map", "mrr", "recall", "precision", "accuracy", "f2")
CUTOFFS = (1, 5, 10, 20, 50, 100)
# Of other pipelines than the default one, and what a hook gives instead of a file.
OTHERS = (
    "audit",
    "planted_truth",
    "model_registry",
    "search_parts",
    "final.search_parts",
    "champion",
    "promotion",
    "registration",
    "training_profile",
    "drift",
    "retrain_report",
)


def entries(store: Path) -> int:
    with lmdb.open(str(store), max_dbs=2, readonly=True) as opened, opened.begin() as transaction:
        return int(
            transaction.stat(opened.open_db(b"entries", transaction, create=False))["entries"]
        )


def teachers(store: Path) -> set[str]:
    return {path.name for path in (store / "models").iterdir()}


@pytest.fixture(scope="module")
def results(whole_run: Any, kedro: Any) -> dict[str, Any]:
    done = kedro("anmi", "results", "--json", data_root=whole_run.data, store=whole_run.store)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_artifact_is_there_in_one_version(whole_run: Any, open_catalog: Any) -> None:
    with open_catalog(whole_run, "test") as (catalog, _):
        names = [name for name in catalog if not name.startswith(("param", *OTHERS))]
        assert len(names) > 30
        for name in names:
            assert catalog.exists(name), name
            if name != "store":
                (version,) = Path(catalog.get(name)._filepath).iterdir()
                assert re.match(r"\d{4}-\d\d-\d\dT", version.name), name
                catalog.load(name)
    assert not list(whole_run.data.rglob(".*.tmp")), "something was left half-written"


def test_the_results_have_the_promised_keys(results: dict[str, Any]) -> None:
    assert results.keys() >= RESULT_KEYS
    # Nobody marked anything here.
    assert [key for key in RESULT_KEYS if not results[key]] == ["marks"]
    assert {frozenset(row) for row in results["rows"]} == {frozenset(ROW_KEYS)}
    assert {Path(place).exists() for place in results["paths"].values()} == {True}
    assert set(results["paths"]) == {"report", "trained_model"}


def test_baselines_and_trained_have_every_metric(results: dict[str, Any]) -> None:
    rows = pd.DataFrame(results["rows"])
    rows = rows[rows.bucket == "all"]
    assert set(rows.recipe) == {"bm25", "zero_shot", "anmi_2_1", "hybrid"}
    for _, part in rows.groupby("recipe"):
        named = {name for name in part.metric if not name.startswith("plain_")}
        assert named == {f"{metric}@{k}" for metric in METRICS for k in CUTOFFS}
    assert ((rows.low <= rows.value) & (rows.value <= rows.high)).all()
    assert rows.value.between(0, 1).all()
    assert (rows.seed_count == 1).all()
    value = rows.set_index(["recipe", "metric"]).value
    assert value["bm25", "mrr@10"] == pytest.approx(0.52, abs=0.07), "known for this collection"
    assert value["bm25", "recall@10"] == pytest.approx(0.80, abs=0.07)
    compared = {(row["system"], row["baseline"]) for row in results["comparisons"]}
    assert {("anmi_2_1", "zero_shot"), ("anmi_2_1", "bm25")} <= compared


def test_the_printed_results_say_where_things_are(whole_run: Any, kedro: Any) -> None:
    done = kedro("anmi", "results", data_root=whole_run.data, store=whole_run.store)
    assert done.returncode == 0, done.stderr
    for name in (
        "report.html",
        "trained_model",
        "mlflow.db",
        "BM25",
        "zero-shot",
        "anmi_2_1",
        "max_ratio",
    ):
        assert name in done.stdout
    assert re.search(r"\d+ of [\d,]+ selected negatives are in truth relevant", done.stdout)
    assert "kedro anmi explain --env test" in done.stdout


def test_no_held_out_query_and_no_positive_among_the_negatives(whole_run: Any) -> None:
    rows = whole_run.table("selection", "training_rows.parquet")
    queries = whole_run.table("ingestion", "queries.parquet").set_index("query_id")
    qrels = whole_run.table("ingestion", "qrels.parquet")
    related = whole_run.table("ingestion", "related_documents.parquet")
    assert (queries.loc[rows.query_id].split.to_numpy() == rows.split.to_numpy()).all()
    assert set(rows.split) == {"train"}
    for part, barred in ((rows[rows.split == "train"], {"dev", "test"}), (rows, {"test"})):
        held_out = queries[queries.split.isin(barred)]
        assert set(held_out.split) == barred
        assert not set(part["query"]) & set(held_out.text)
    group = copies(related)
    positives = qrels.groupby("query_id").document_id.agg(set)
    for row in rows.itertuples():
        known = {group.get(document, document) for document in positives[row.query_id]}
        assert not known & {group.get(document, document) for document in row.negative_ids}, (
            row.query_id
        )
        assert (
            len(set(row.negative_ids))
            == len(row.negative_ids)
            == len(row.negatives)
            == len(row.weights)
            <= 7
        )
    assert (rows.negative_ids.map(len) == 7).mean() > 0.9


def test_nothing_that_training_reads_names_a_new_document(whole_run: Any) -> None:
    new = whole_run.table("ingestion", "new_documents.parquet")
    rows = whole_run.table("selection", "training_rows.parquet")
    pseudo = whole_run.table("adaptation", "pseudo_queries.parquet")
    read = {
        *rows.positive_id,
        *rows.negative_ids.explode(),
        *pseudo.document_id[pseudo.split == "train"],
    }
    assert set(new.split) == {"dev", "test"} and not read & set(new.document_id)
    buckets = whole_run.table("evaluation", "query_buckets.parquet").set_index("query_id").bucket
    qrels = whole_run.table("ingestion", "qrels.parquet")
    wholly = qrels.document_id.isin(new.document_id).groupby(qrels.query_id).all()
    assert (buckets == "new").any() and wholly[buckets.index[buckets == "new"]].all()


def test_tracking_holds_one_finished_run(
    whole_run: Any, results: dict[str, Any], project: Path
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{whole_run.data}/tracking/mlflow.db")
    (experiment,) = [found for found in client.search_experiments() if found.name == "anmi-test"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["recipe"] == "anmi_2_1"
    assert run.data.params["bm25.k1"] == "0.9", "defaults are parameters, too"
    asked = next(
        r for r in results["rows"] if r["recipe"] == "anmi_2_1" and r["metric"] == "ndcg@10"
    )
    assert run.data.metrics["all/anmi_2_1.ndcg_at_10"] == pytest.approx(asked["value"])
    assert "training_log/dev_ndcg_at_10" in run.data.metrics
    tags = run.data.tags
    assert tags["environment"] == "test"
    assert {"recipe", "collection", "encoder", "seed"} <= tags.keys()
    assert len(tags) < 25, "the verdict stands below them on the page of the run"
    assert "has nDCG@10 " in tags["mlflow.note.content"]
    assert run.info.run_name == "anmi_2_1 · api_docs"
    inputs = {entry.dataset.name: entry.dataset.digest for entry in run.inputs.dataset_inputs}
    assert inputs["api_docs"] == tags["collection_digest"]
    assert inputs.keys() == {"api_docs", "training_rows"}
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True, check=False
    )
    if head.returncode == 0:
        assert re.fullmatch(r"[0-9a-f]{40}", tags["git_commit"])
    artifacts = {found.path for found in client.list_artifacts(run.info.run_id)}
    assert "report.html" in artifacts
    assert (
        (whole_run.data / "tracking" / "artifacts" / run.info.run_id / "artifacts" / "report.html")
        .stat()
        .st_size
    )


def test_the_record_is_complete(whole_run: Any, open_catalog: Any) -> None:
    (path,) = (whole_run.data / "runs").glob("*/run.json")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    with open_catalog(whole_run, "test") as (catalog, _):
        # What an earlier run left is only read.
        names = {name for name in catalog if not name.startswith(("param", *OTHERS))}
        names -= {"store"}
    assert manifest["status"] == "finished"
    assert manifest["error"] is None
    assert set(manifest["saved"]) == names
    assert {each["version"] for each in manifest["saved"].values()} == {manifest["run_id"]}
    assert manifest["environment"] == "test"
    assert manifest["parameters"]["recipe"] == "anmi_2_1"
    assert {"torch", "numpy", "kedro"} <= manifest["packages"].keys()
    assert {node["node"] for node in manifest["nodes"]} == {
        node.name for node in pipelines["__default__"].nodes
    }
    assert all(node["seconds"] >= 0 and node["peak_mib"] > 0 for node in manifest["nodes"])
    assert manifest["start"] <= manifest["end"]


def test_explain_shows_what_each_judge_said(whole_run: Any, kedro: Any) -> None:
    rows = whole_run.table("selection", "training_rows.parquet")
    row = rows[rows.negative_ids.map(len) == 7].iloc[0]
    done = kedro("anmi", "explain", row.query_id, data_root=whole_run.data, store=whole_run.store)
    assert done.returncode == 0, done.stderr
    for name in ("bm25", "dense", "relevant", "elo", "verdict", row.positive_id):
        assert name in done.stdout
    taken = [line for line in done.stdout.splitlines() if "│ negative " in line]
    assert len(taken) == 7
    # Long ids go on in the next line.
    whole = "".join(
        line.split("│")[2].strip() for line in done.stdout.splitlines() if line.count("│") > 4
    )
    assert all(negative in whole for negative in row.negative_ids)


def selected(place: Any, version: int) -> dict[str, bytes]:
    """The bytes of what selection made."""
    found = {}
    for name in ("selection", "training_rows.parquet", "negatives"):
        path = place.versions("selection", name)[version]
        files = sorted(path.rglob("*.*")) if path.is_dir() else [path]
        found |= {f"{name}/{file.name}": file.read_bytes() for file in files}
    return found


def test_the_same_seed_gives_the_same_bytes_and_nothing_is_computed_twice(
    whole_run: Any, kedro: Any, tmp_path: Path
) -> None:
    """In the same store, where all is cached."""
    store = tmp_path / "store"
    shutil.copytree(whole_run.store, store)
    before, made = entries(store), teachers(store)
    again = type(whole_run)(tmp_path / "data", store)
    settings = "recipe=anmi_2_1,recipes.anmi_2_1.pool=7,recipes.anmi_2_1.training.curriculum=none"
    done = kedro(
        "run", "--pipelines", "mining", "--params", settings, data_root=again.data, store=store
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert selected(again, 0) == selected(whole_run, 0)
    assert entries(store) == before > 3000
    assert teachers(store) == made
    told = kedro("anmi", "results", data_root=again.data, store=store).stdout
    params = shlex.quote(settings)
    onward = "--env test --pipelines adaptation,training,evaluation,final,reporting"
    assert told.endswith(f"\nnext: kedro run {onward} --params {params}\n")
