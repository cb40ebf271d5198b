"""The store before a real transformer from a folder: what changes the model misses, what does not change it hits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anmi.retrieval.encoders import encode, load_encoder
from anmi.retrieval.prompts import Prompts
from anmi.store import Store

WORDS = ["red", "fox", "blue", "whale", "the", "den"]
TEXTS = ["the red fox", "a blue whale", "den " * 30]


@pytest.fixture(scope="module")
def folder(network_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer, saved as sentence-transformers do."""
    target = tmp_path_factory.mktemp("models") / "tiny"
    network_encoder(WORDS).save(str(target), create_model_card=False)
    return target


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Any:
    """A store that holds what the model makes of the texts."""
    with Store(tmp_path / "store") as opened:
        encode(load_encoder(str(folder), tmp_path), TEXTS, opened, "float32")
        assert len(opened) == 3
        yield opened


def computed(store: Store, folder: Path, **load: Any) -> int:
    """Return how many values were new to the store, checked against a model without a store."""
    before = len(store)
    model = load_encoder(str(folder), folder, **load)
    found = encode(model, TEXTS, store, "float32", role="query")
    # Half a step of float16 below 1.
    np.testing.assert_allclose(found, encode(model, TEXTS, None, "float32", role="query"), atol=2.5e-4)
    return len(store) - before


def test_a_renamed_folder_hits(store: Store, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "another place" / "another name")
    assert computed(store, tmp_path / "another place" / "another name") == 0


def test_one_changed_weight_misses(store: Store, folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "tiny")
    (file,) = (tmp_path / "tiny").rglob("model.safetensors")
    weights = load_file(file)
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name][WORDS.index("fox"), 3] += 0.5
    save_file(weights, file, metadata={"format": "pt"})
    assert computed(store, tmp_path / "tiny") == 3


def test_one_changed_word_of_the_tokenizer_misses(store: Store, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "tiny")
    (file,) = (tmp_path / "tiny").rglob("tokenizer.json")
    file.write_text(file.read_text().replace('"whale"', '"a"'))
    assert computed(store, tmp_path / "tiny") == 3


@pytest.mark.parametrize("change", [{"max_length": 8}, {"prompts": Prompts("the ")}], ids=str)
def test_another_length_or_prompt_misses(store: Store, folder: Path, change: dict[str, Any]) -> None:
    assert computed(store, folder, **change) == 3
    assert computed(store, folder) == 0


def test_another_precision_misses(store: Store, folder: Path) -> None:
    encode(load_encoder(str(folder), folder), TEXTS, store, "bfloat16")
    assert len(store) == 6
    assert computed(store, folder) == 0
