"""What is misspelt is named with the nearest valid name, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline
from tests.commands import Commands
from tests.hooks.selecting import write_selecting
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from anmi.errors import AnmiError
from anmi.hooks.checks import (
    CheckHooks,
    check_collection,
    check_encoder,
    check_network,
    check_recipes,
)
from anmi.judging.cross_encoder import open_cross_encoder
from anmi.pipelines.params import BM25Params, SearchParams
from anmi.retrieval import e5
from anmi.retrieval.encoders import load_encoder


def test_what_any_recipe_says_of_mining_is_checked() -> None:
    def stated(**settings: Any) -> dict[str, Any]:
        return {"mine": {"description": "x", "steps": {"random": {}}, "mining": {"bm25": settings}}}

    check_recipes(stated(k1=1.5, engine="rank_bm25", epsilon=0.25), {"bm25": BM25Params})
    with pytest.raises(
        AnmiError, match=r'no parameter "recipes.mine.mining.bm25.k2": did you mean "k1"'
    ):
        check_recipes(stated(k2=1.5), {"bm25": BM25Params})


def test_several_processes_of_one_run_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(AnmiError, match="WORLD_SIZE is 2, as torchrun sets it"):
        CheckHooks().before_pipeline_run(Pipeline([]), DataCatalog())


def test_the_package_of_a_network_is_asked_for_before_mining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e5, "PACKAGE", "no_such_package")
    for encoder, network in (("e5", "auto"), ("corpus", "e5")):
        with pytest.raises(AnmiError, match=r"\[multilingual\]"):
            check_network(encoder, SearchParams(network=network), tmp_path)
    check_network("corpus", SearchParams(), tmp_path)
    check_network("corpus", SearchParams(network="e5", parts=["bm25"]), tmp_path)
    e5.folder_in(tmp_path).mkdir()
    check_network("e5", SearchParams(), tmp_path)


def test_a_sparse_retriever_is_no_encoder_to_mine_with(tmp_path: Path) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')
    with pytest.raises(AnmiError, match=r"is a sparse retriever.*recipe=sparse"):
        check_encoder(str(tmp_path), tmp_path)
    with pytest.raises(AnmiError, match="is a sparse retriever"):
        check_encoder(tmp_path.name, tmp_path.parent)


def _without_padding(folder: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')


def _for_images(folder: Path) -> None:
    (folder / "0_CLIPModel").mkdir()
    config = {"model_type": "clip", "vision_config": {}, "text_config": {}}
    (folder / "0_CLIPModel" / "config.json").write_text(json.dumps(config))


def _prompted_by_a_number(folder: Path) -> None:
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": 5}}')


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_without_padding, "a tokenizer without a padding token"),
        (_for_images, r"takes images or sound \(clip"),
        (_prompted_by_a_number, "the prompt query in config_sentence_transformers.json is 5"),
    ],
)
def test_a_folder_that_cannot_encode_texts_is_refused_before_a_run(
    tmp_path: Path, spoil: Callable[[Path], None], told: str
) -> None:
    spoil(tmp_path)
    with pytest.raises(AnmiError, match=told):
        check_encoder(str(tmp_path), tmp_path)
    with pytest.raises(AnmiError, match=told):
        load_encoder(str(tmp_path), tmp_path)
    with pytest.raises(AnmiError, match=told):
        open_cross_encoder(str(tmp_path), 32)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("encoder=org/" + "x" * 5000, 'Error: there is no encoder "org/xxx'),
        ("encoder=/" + "x" * 5000, 'Error: encoder "/xxx'),
        ("dense.encoder=mini", 'Error: there is no encoder "mini"'),
        ("recipes.plain.extends=hard,recipes.hard.extends=plain", "Error: recipe hard: extends"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(
    tmp_path: Path, commands: Commands, parameters: str, told: str
) -> None:
    code, text = write_selecting(tmp_path, commands).do(f"run --params {parameters}")
    assert code == 1 and text.splitlines()[-1].startswith(told), text
    assert "Traceback" not in text


def test_a_folder_without_its_kind_is_told_how_to_write_it(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(AnmiError, match=f'for what lies there write "docs:{tmp_path}/notes"'):
        check_collection(f"{tmp_path}/notes")
    (tmp_path / "corpus.jsonl").touch()
    with pytest.raises(AnmiError, match=f'write "beir:{tmp_path}"'):
        check_collection(str(tmp_path))
