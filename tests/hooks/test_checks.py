"""What is misspelt is named with the nearest valid name, before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from anmi.errors import AnmiError
from anmi.hooks.checks import check_collection, check_encoder, check_packages, check_recipes
from anmi.pipelines.params import BM25Params
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import Recipe


def test_what_any_recipe_says_of_mining_is_checked() -> None:
    def stated(**settings: Any) -> dict[str, Any]:
        return {"mine": {"description": "x", "steps": {"random": {}}, "mining": {"bm25": settings}}}

    check_recipes(stated(k1=1.5, engine="rank_bm25", epsilon=0.25), {"bm25": BM25Params})
    with pytest.raises(
        AnmiError, match=r'no parameter "recipes.mine.mining.bm25.k2": did you mean "k1"'
    ):
        check_recipes(stated(k2=1.5), {"bm25": BM25Params})


def test_an_extra_that_training_needs_is_asked_for_before_mining(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    recipe = Recipe(description="x", steps={"random": {}}, training={"hardness": "hans"})
    with pytest.raises(AnmiError, match=r"pip install \"anmi-retrieval\[code-mix\]\""):
        check_packages(merged_options(recipe, TrainingParams()))
    check_packages(merged_options(recipe, TrainingParams(options={"hardness": "none"})))


def test_a_sparse_retriever_is_no_encoder_to_mine_with(tmp_path: Path) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')
    with pytest.raises(AnmiError, match=r"is a sparse retriever.*recipe=sparse"):
        check_encoder(str(tmp_path), tmp_path)
    with pytest.raises(AnmiError, match="is a sparse retriever"):
        check_encoder(tmp_path.name, tmp_path.parent)


def test_a_folder_without_its_kind_is_told_how_to_write_it(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(AnmiError, match=f'for what lies there write "docs:{tmp_path}/notes"'):
        check_collection(f"{tmp_path}/notes")
    (tmp_path / "corpus.jsonl").touch()
    with pytest.raises(AnmiError, match=f'write "beir:{tmp_path}"'):
        check_collection(str(tmp_path))
