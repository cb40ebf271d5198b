"""Every recipe from the same mined candidates to a trained model, through the project's command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow
# Negatives of a step and most of a row, and the least share of queries that get as many with the few candidates of the
# test environment: there the ratio leaves little of the dense ones, and a cross-encoder of 64 pairs knows few to be
# safe.
RECIPES = {
    "in_batch": (0, 0, 1.0),
    "bm25_random": (7, 7, 1.0),
    "naive_top": (7, 7, 1.0),
    "nv_retriever": (7, 7, 0.4),
    "anmi_2_0": (7, 7, 0.0),
    "anmi": (7, 15, 0.4),
    "anmi_2_1_curriculum": (7, 50, 0.0),
}
# Published recipes that are selected with, not trained.
SELECTED = (
    "random",
    "shift",
    "nv_margin",
    "nv_abs",
    "simans",
    "simans_rank",
    "progcl_weight",
    "progcl_mix",
    "progcl_beta",
    "anmi_2_1",
)


@pytest.fixture
def mined(whole_run: Any, tmp_path: Path) -> Any:
    """A data root in which everything up to the Elo ratings is done, with a recipe that asks for all of it."""
    for stage in ("ingestion", "adaptation", "bm25", "consistency", "dense", "denoising", "elo"):
        shutil.copytree(whole_run.data / stage, tmp_path / "data" / stage)
    # Another worker may look at the store of the run meanwhile.
    shutil.copytree(whole_run.store, tmp_path / "store")
    return type(whole_run)(tmp_path / "data", tmp_path / "store")


OFTEN = ("in_batch", "anmi", "anmi_2_1_curriculum")


@pytest.mark.parametrize(
    "recipe", [pytest.param(recipe, marks=() if recipe in OFTEN else pytest.mark.rare) for recipe in RECIPES]
)
def test_a_recipe_selects_and_trains(recipe: str, mined: Any, in_process: Any) -> None:
    done = in_process(
        mined, "run", "--pipelines", "selection,training", "--params", f"recipe={recipe},training.refit=false"
    )
    assert done.exit_code == 0, done.output + str(done.exception)
    wanted, most, share = RECIPES[recipe]
    rows = mined.table("selection", "training_rows.parquet")
    rows = rows[rows.split == "train"]
    found = rows.negative_ids.map(len)
    assert found.sum() > 0 or wanted == 0
    assert found.max() <= most
    assert (found >= wanted).mean() >= share
    assert mined.json("selection", "selection_summary.json")["coverage"] == pytest.approx((found >= wanted).mean())
    assert len(rows) == 60 or recipe == "bm25_random", "only that recipe drops queries"
    log, summary = mined.table("training", "training_log.parquet"), mined.json("training", "training_summary.json")
    assert np.isfinite(log.loss).all()
    assert summary["relative_weight_change"] > 0
    assert summary["recipe"] == recipe
    assert summary["mined_negatives"] == np.minimum(found, wanted).sum()
    assert (recipe == "anmi_2_1_curriculum") == ("difficulty" in log)


@pytest.mark.rare
def test_a_sparse_retriever_from_candidates_to_report_and_export(mined: Any, in_process: Any, tmp_path: Path) -> None:
    from anmi.search import HybridSearch

    stages = "selection,training,evaluation,reporting"
    done = in_process(
        mined, "run", "--pipelines", stages, "--params", "recipe=sparse,training.refit=false,training.options.epochs=1"
    )
    assert done.exit_code == 0, done.output + str(done.exception)
    metrics = mined.table("evaluation", "metrics.parquet").query("metric == 'ndcg@10' and bucket == 'all'")
    value = metrics.set_index("recipe").value
    assert value["sparse"] > 0.8 * value["bm25"], "it begins as BM25 over sub-words"
    terms = mined.json("evaluation", "sparse_terms.json")
    assert any(term["further"] for document in terms["documents"] for term in document["terms"])
    (report,) = (mined.data / "reporting/report.html").glob("*/report.html")
    assert "What documents are found by" in report.read_text(encoding="utf-8")
    (folder,) = (mined.data / "evaluation/search_index").glob("*/search_index")
    assert HybridSearch.load(folder).search("mean of an array", 3, "sparse")[0]
    written = in_process(mined, "anmi", "export", "opensearch", str(tmp_path / "files"), "--json")
    assert written.exit_code == 0, written.output
    assert json.loads(written.stdout)["documents"] == len(mined.table("ingestion", "corpus.parquet"))
    assert {path.name for path in (tmp_path / "files").iterdir()} == {"index.json", "documents.ndjson", "idf.json"}
    assert "is not empty" in in_process(mined, "anmi", "export", "opensearch", str(tmp_path / "files")).stderr


def test_the_seed_and_nothing_else_changes_what_is_drawn(whole_run: Any, open_catalog: Any) -> None:
    from anmi.selection.recipe import Runner

    with open_catalog(whole_run, "test") as (_, parameters):
        recipe = parameters["recipes"].get("bm25_random")
    rated = whole_run.rated()
    drawn = [Runner(recipe, seed).run(rated).whole() for seed in (1, 2, 1)]
    single = rated.whole()
    one_by_one = [Runner(recipe, 1).run(_one(single, row)).whole() for row in range(8)]
    assert np.array_equal(drawn[0].verdict, drawn[2].verdict)
    assert not np.array_equal(drawn[0].verdict, drawn[1].verdict)
    for row, block in enumerate(one_by_one):
        width = block.verdict.shape[1]
        assert np.array_equal(block.negatives[0], drawn[0].negatives[row, :width]), "shards may not matter"


def test_the_other_recipes_select_from_the_same_candidates(whole_run: Any, open_catalog: Any) -> None:
    from anmi.candidates import SOURCES
    from anmi.selection.recipe import Runner

    with open_catalog(whole_run, "test") as (_, parameters):
        book = parameters["recipes"]
    rated = whole_run.rated()
    taken = {name: Runner(book.get(name), 1).run(rated).whole() for name in SELECTED}
    for name, block in taken.items():
        found = block.negatives.sum(axis=1)
        fits = ((block.source & SOURCES["random"]) > 0).any() if name == "random" else True
        assert bool(found.any()) == fits and found.max() <= 7, name
        assert ((block.weight >= 0) & (block.weight <= 1)).all(), name
    ranks = taken["shift"].columns["dense_rank"][taken["shift"].negatives]
    assert ranks.min() > 10
    chosen = {name: block.negatives.tobytes() for name, block in taken.items()}
    assert chosen["simans"] != chosen["simans_rank"] and chosen["progcl_mix"] != chosen["progcl_weight"]


def _one(block: Any, row: int) -> Any:
    from anmi.candidates import CandidateShards

    return CandidateShards.of([block.take(np.array([row]))])
