"""An ablation as a user runs it, on a small collection whose other answers are known."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
KINDS = ("rivers", "castles", "engines", "violins", "glaciers", "ferries", "orchards", "clocks")
PLACES = ("Bern", "Oslo", "Porto", "Gdansk", "Lyon", "Turku")
SPLITS = ("train", "train", "train", "train", "dev", "test")


def write_collection(folder: Path) -> Path:
    """48 queries; of each two documents that state the same fact one is labelled."""
    documents, queries, labels = [], [], {split: ["query-id\tcorpus-id\tscore"] for split in SPLITS}
    for kind in KINDS:
        for place, split in zip(PLACES, SPLITS, strict=True):
            name, fact = f"{kind}-{place}", {"triples": [[kind, "in", place]]}
            told = (f"The old {kind} of {place} are described in a chronicle.", f"A survey measured {place}: {kind}.")
            documents += [
                {"_id": f"{name}-{i}", "title": "", "text": text, "metadata": fact} for i, text in enumerate(told)
            ]
            queries.append({"_id": name, "text": f"What is known of the {kind} of {place}?"})
            labels[split].append(f"{name}\t{name}-0\t1")
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for split, lines in labels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def files(place: Any, kind: str) -> dict[str, bytes]:
    folder = place.data / "ablation" / "api_docs_small" / kind
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}


def small(tmp_path: Path) -> str:
    """Write the collection, and return the parameters that name it."""
    collection = write_collection(tmp_path / "collection")
    return f"ablation.collections.api_docs_small.collection=beir:{collection},ablation.resamples=200"


def documented(parameters: str) -> list[str]:
    """Return the command of the documentation, on less data."""
    (command,) = re.findall(r"^kedro (run --pipelines ablation.*smoke)$", DOCUMENT, flags=re.MULTILINE)
    words = shlex.split(command)
    return [*words[:-1], f"{words[-1]},{parameters}"]


def check(results: dict[str, Any]) -> None:
    assert results["cells"] == {"finished": 2, "reused": 0, "failed": 0}
    rows = {(row["judgments"], row["recipe"]): row for row in results["rows"]}
    assert set(rows) == {(j, r) for j in ("completed", "original") for r in ("in_batch", "naive_top")}
    top = rows["completed", "naive_top"]
    assert {"collection", "encoder", "seed_count", "ndcg_10", "low", "high", "baseline", "p_holm", "coverage",
            "false_negative_rate",
            "train_seconds"} <= set(top)  # fmt: skip
    assert top["false_negative_rate"] > 0.02, "the other answer is among the nearest"
    assert top["low"] <= top["ndcg_10"] <= top["high"]
    assert rows["completed", "in_batch"]["p_holm"] is not None
    assert rows["original", "naive_top"]["ndcg_10"] != top["ndcg_10"]


def test_recipes_are_trained_and_compared(tmp_path: Path, new_place: Any, in_process: Callable[..., Result]) -> None:
    place = new_place(tmp_path)
    done = in_process(place, *documented(f"{small(tmp_path)},ablation.workers=1"))
    assert done.exit_code == 0, done.output + str(done.exception)
    check(place.json("ablation", "ablation_results.json"))
    shown = in_process(place, "anmi", "ablation")
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in ("naive_top", "completed", "original", "ablation_report.html"))


@pytest.mark.rare
def test_an_ablation_is_resumed_and_survives_a_cell_that_fails(
    tmp_path: Path, new_place: Any, kedro: Any, in_process: Callable[..., Result]
) -> None:
    """One test, since a run takes seconds: what it leaves, what is done again, what a failure costs."""
    place = new_place(tmp_path)
    given = small(tmp_path)
    done = kedro(*documented(f"{given},ablation.workers=2"), data_root=place.data, store=place.store)
    assert done.returncode == 0, done.stdout + done.stderr
    check(place.json("ablation", "ablation_results.json"))
    assert nested_runs(place) == {("in_batch", "FINISHED"), ("naive_top", "FINISHED")}
    before = files(place, "cells")
    assert len(before) == 2

    # The next run has one cell to do again, in one process, and one that cannot be done; the third is there.
    (lost,) = [name for name in before if name.startswith("in_batch")]
    (place.data / "ablation" / "api_docs_small" / "cells" / lost).unlink()
    wrong = "recipes.naive_top.training.learning_rate=1e-44,ablation.workers=1"
    run = ("run", "--pipelines", "ablation", "--params", f"{given},{wrong}")
    failed = in_process(place, *run)
    assert failed.exit_code == 1, failed.output
    assert "1 of 2 cells failed (api_docs_small/naive_top/seed 1" in " ".join(failed.output.split())
    assert "run the same command again" in " ".join(failed.output.split())
    after = place.json("ablation", "ablation_results.json")
    assert after["cells"] == {"finished": 1, "reused": 0, "failed": 1}
    assert "changed no weight" in after["failed"][0]["error"]
    assert [row["recipe"] for row in after["rows"]] == ["in_batch", "in_batch"]
    assert len(place.versions("ablation", "ablation_report.html")) == 2, "what there is, is shown"
    again = files(place, "cells")
    assert set(again) == set(before), "a failed cell leaves nothing"
    assert json.loads(again[lost])["queries"] == json.loads(before[lost])["queries"], "whatever the number of workers"
    assert len(list((place.data / "ablation" / "api_docs_small").glob("mined-*"))) == 1, "mined once"

    # All is there now: nothing is computed.
    finished = in_process(place, "run", "--pipelines", "ablation", "--params", given)
    assert finished.exit_code == 0, finished.output
    assert place.json("ablation", "ablation_results.json")["cells"] == {"finished": 2, "reused": 2, "failed": 0}
    assert files(place, "cells") == again

    # Documents of this collection state facts, so that a recipe may draw from mixed sources.
    mixed = ",".join(f"recipes.in_batch.training.{part}" for part in ("sources=mixed", "negatives=3"))
    drawn = in_process(place, "run", "--pipelines", "ablation", "--params", f"{given},{mixed},ablation.workers=1")
    assert drawn.exit_code == 0, drawn.output
    assert place.json("ablation", "ablation_results.json")["cells"] == {"finished": 2, "reused": 1, "failed": 0}
    (fresh,) = set(files(place, "cells")) - set(again)
    assert fresh.startswith("in_batch")


DOCUMENT = (ROOT / "docs" / "ablation.md").read_text(encoding="utf-8")


def nested_runs(place: Any) -> set[tuple[str, str]]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{place.data}/tracking/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("anmi-test").experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    for child in children:
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert (child.data.tags["collection"], child.data.tags["seed"]) == ("api_docs_small", "1")
        assert 0 < child.data.metrics["ndcg_10_completed"] <= 1
        assert child.data.metrics["train_seconds"] > 0
    return {(child.data.tags["recipe"], child.info.status) for child in children}


def test_what_is_misspelt_is_named_before_anything_runs(new_place: Any, tmp_path: Path, in_process: Any) -> None:
    place = new_place(tmp_path)
    wrong = in_process(place, "run", "--pipelines", "ablation", "--params", "ablation.set=headlin")
    assert wrong.exit_code == 1
    assert 'there is no set "headlin": did you mean "headline"' in wrong.output
    assert not (place.data / "ablation").exists()
    shutil.rmtree(place.data, ignore_errors=True)
    nothing = in_process(place, "anmi", "ablation")
    assert "kedro run --pipelines ablation" in " ".join(nothing.output.split())
