"""``kedro anmi ablate`` on a small collection whose other answers are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.e2e.conftest import KINDS, PLACES, write_beir

from anmi.cli.ablate import cells, named

SPLITS = ("train", "train", "train", "train", "dev", "test")


def write_collection(folder: Path) -> Path:
    """48 queries; of each two documents that state the same fact one is labelled."""
    documents, queries, labels = [], [], {split: ["query-id\tcorpus-id\tscore"] for split in SPLITS}
    for kind in KINDS:
        for place, split in zip(PLACES, SPLITS, strict=True):
            name, fact = f"{kind}-{place}", {"triples": [[kind, "in", place]]}
            told = (
                f"The old {kind} of {place} are described in a chronicle.",
                f"A survey measured {place}: {kind}.",
            )
            documents += [
                {"_id": f"{name}-{i}", "title": "", "text": text, "metadata": fact}
                for i, text in enumerate(told)
            ]
            queries.append({"_id": name, "text": f"What is known of the {kind} of {place}?"})
            labels[split].append(f"{name}\t{name}-0\t1")
    return write_beir(folder, documents, queries, labels)


def test_systems_and_collections_take_names_and_settings(tmp_path: Path) -> None:
    systems = ["anmi", "short=anmi:training.options.epochs=1,dense.depth=9"]
    places = "webnlg/en=beir:../x,ingestion.max_queries=30,api_docs"
    found = cells(systems, places, "1,2", "encoder=static", tmp_path)
    assert len(found) == 8
    assert len({cell.folder for cell in found}) == 8
    params = {"final": "never", "encoder": "static", "collection": "beir:../x", "recipe": "anmi"}
    params |= {"seed": "2", "ingestion.max_queries": "30"}
    params |= {"training.options.epochs": "1", "dense.depth": "9"}
    assert found[3][1:] == ("webnlg/en", "short", 2, params)
    assert found[-1].params["collection"] == "api_docs"
    assert "ingestion.max_queries" not in found[-1].params
    assert named("anmi", ["a.b=1"])[0] == "anmi,a.b=1", "without a name the settings are the name"


@pytest.mark.rare
def test_recipes_are_compared_and_cells_that_are_there_are_kept(
    kedro: Any, in_process: Any, new_place: Any, tmp_path: Path
) -> None:
    place, output = new_place(tmp_path), tmp_path / "cells"
    collection = write_collection(tmp_path / "collection")
    words = [
        "in_batch",
        "top=naive_top:training.options.epochs=1,training.options.alpha=1",
        "bad=in_batch:training.options.learning_rate=1e-44",
    ]
    places = ("--collections", f"facts=beir:{collection}", "--output", str(output))
    failed = kedro("anmi", "ablate", *words, *places, data_root=place.data, store=place.store)
    assert failed.returncode == 1
    assert "facts, bad, seed 1: failed" in failed.stderr
    assert "changed no weight" in failed.stderr
    document = json.loads((output / "ablation.json").read_text(encoding="utf-8"))
    assert [cell["system"] for cell in document["cells"]] == ["in_batch", "top"]
    assert [(cell["system"], cell["folder"]) for cell in document["failed"]] == [
        ("bad", "facts/bad/seed1")
    ]

    made = {path: path.stat().st_mtime_ns for path in output.glob("facts/*/seed1/cell.json")}
    again = in_process(place, "anmi", "ablate", *words[:2], *places, "--json")
    assert again.exit_code == 0, again.output
    assert {path: path.stat().st_mtime_ns for path in made} == made, "nothing is run again"
    found = json.loads(again.stdout)
    rows = {
        (row["judgments"], row["system"]): row for row in found["rows"] if row["bucket"] == "all"
    }
    assert set(rows) == {
        (judged, name) for judged in ("original", "completed") for name in ("in_batch", "top")
    }
    top = rows["original", "top"]
    scores = {
        name: pd.read_parquet(
            next((output / "facts" / name / "seed1").rglob("query_metrics.parquet/*/*.parquet"))
        )
        for name in ("in_batch", "top")
    }
    means = {name: table.groupby("system")["ndcg@10"].mean() for name, table in scores.items()}
    assert top["ndcg_10"] == pytest.approx(means["top"]["naive_top"])
    assert top["hybrid_ndcg_10"] == pytest.approx(means["top"]["hybrid"])
    assert top["difference"] == pytest.approx(
        means["top"]["naive_top"] - means["in_batch"]["in_batch"]
    )
    assert top["p_holm"] == top["p_value"]
    assert rows["original", "in_batch"]["p_value"] is None
    # Half of what is relevant has no label, and the encoder is asked for all of it.
    assert rows["completed", "top"]["ndcg_10"] != top["ndcg_10"]
    assert top["facts"]["train_seconds"] > 0
    table = (output / "ablation.md").read_text(encoding="utf-8")
    assert f"| top | {top['ndcg_10']:.4f} |" in table
    differing = "training.options.alpha, training.options.epochs"
    assert f"differ besides recipe, collection and seed: {differing}" in table
    assert "facts: top is" in table and "in_batch (" in table


def test_a_recipe_that_is_not_there_is_named_before_anything_runs(
    in_process: Any, new_place: Any, tmp_path: Path
) -> None:
    words = ("anmi", "ablate", "anmy", "--output", str(tmp_path / "cells"))
    wrong = in_process(new_place(tmp_path), *words)
    assert wrong.exit_code == 1
    assert 'there is no recipe "anmy"' in wrong.stderr
    assert not (tmp_path / "cells").exists()
