"""Every recipe that ships, from the collection to the report, through the project's command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.e2e.conftest import write_chronicle

RECIPES = yaml.safe_load(
    (Path(__file__).parents[2] / "conf/base/recipes.yml").read_text(encoding="utf-8")
)["recipes"]


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model of one layer that knows some words."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder = tmp_path_factory.mktemp("masked_lm")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "array",
        "the",
        "of",
        "a",
        "values",
        "mean",
        "return",
    ]
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    BertForMaskedLM(
        BertConfig(vocab_size=len(words), max_position_embeddings=512, **sizes)
    ).save_pretrained(folder)
    BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder)
    return folder


@pytest.mark.rare
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_from_the_collection_to_the_report(
    recipe: str,
    tmp_path: Path,
    new_place: Any,
    kedro: Any,
    open_catalog: Any,
    request: pytest.FixtureRequest,
) -> None:
    place, settings = new_place(tmp_path), [f"recipe={recipe}", "training.options.epochs=1"]
    if recipe.startswith("dnh"):
        settings.append(f"collection=kg:{request.getfixturevalue('small_graph')}")
    if "encoder" in RECIPES[recipe]:
        # Of few and short texts, since a network takes its time.
        splits = ("train", "train", "dev", "train", "train", "test")
        settings.append(f"collection=beir:{write_chronicle(tmp_path / 'chronicle', splits)}")
    if recipe == "sparse_distilled":
        settings.append(f"training.options.masked_lm={request.getfixturevalue('masked_lm')}")
    done = kedro("run", "--params", ",".join(settings), data_root=place.data, store=place.store)
    assert done.returncode == 0, done.stdout + done.stderr
    with open_catalog(place, "test", recipe=recipe) as (catalog, parameters):
        chosen = parameters["recipes"].get(recipe)
        assert parameters["encoder"] == (chosen.encoder or "static")
        rows, log, summary, metrics = (
            catalog.load(name)
            for name in ("training_rows", "training_log", "training_summary", "metrics")
        )
        assert catalog.load("report")
    found = rows.negative_ids.map(len)
    assert found.max() <= (chosen.pool or chosen.negatives) and (found.sum() > 0) == (
        chosen.negatives > 0
    )
    assert np.isfinite(log.loss).all() and summary["relative_weight_change"] > 0
    assert recipe in set(metrics.recipe)


@pytest.mark.rare
def test_a_sparse_retriever_finds_what_bm25_finds_and_is_exported(
    tmp_path: Path, new_place: Any, kedro: Any, open_catalog: Any, in_process: Any
) -> None:
    from anmi.search import HybridSearch

    place = new_place(tmp_path)
    done = kedro(
        "run",
        "--params",
        "recipe=sparse,training.options.epochs=1",
        data_root=place.data,
        store=place.store,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with open_catalog(place, "test", recipe="sparse") as (catalog, _):
        metrics, corpus = (catalog.load(name) for name in ("metrics", "corpus"))
        folder = Path(catalog["search_index"]._get_load_path())
    value = metrics.query("metric == 'ndcg@10' and bucket == 'all'").set_index("recipe").value
    assert value["sparse"] > 0.8 * value["bm25"], "it begins as BM25 over sub-words"
    assert HybridSearch.load(folder).search("mean of an array", 3, "sparse")[0]
    export = ("anmi", "export", "vectors", str(tmp_path / "files"))
    written = in_process(place, *export, "--json")
    assert written.exit_code == 0, written.output
    assert json.loads(written.stdout)["documents"] == len(corpus)
    assert (tmp_path / "files" / "documents.parquet").is_file()
    assert "is not empty" in in_process(place, *export).stderr


def test_the_seed_and_nothing_else_changes_what_is_drawn(whole_run: Any, open_catalog: Any) -> None:
    from anmi.candidates import CandidateShards
    from anmi.selection.recipe import Runner

    with open_catalog(whole_run, "test") as (_, parameters):
        recipe = parameters["recipes"].get("bm25_random")
    rated = whole_run.with_stage_columns()
    drawn = [Runner(recipe, seed).run(rated).whole() for seed in (1, 2, 1)]
    single = rated.whole()
    assert np.array_equal(drawn[0].verdict, drawn[2].verdict)
    assert not np.array_equal(drawn[0].verdict, drawn[1].verdict)
    for row in range(8):
        alone = Runner(recipe, 1).run(CandidateShards.of([single.take(np.array([row]))])).whole()
        width = alone.verdict.shape[1]
        assert np.array_equal(alone.negatives[0], drawn[0].negatives[row, :width]), (
            "shards may not matter"
        )
