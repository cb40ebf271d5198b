"""Encoders by name, checked weights, fingerprints of what a model computes, and the cache in front of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anmi.errors import AnmiError
from anmi.retrieval import encoders
from anmi.store import Store

WORDS = ["[UNK]", "[PAD]", "red", "fox", "blue", "whale", "den", "the"]


def static_model(seed: int = 0, words: list[str] = WORDS) -> Any:
    """A table of one vector per word, without any download."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.random.default_rng(seed).normal(size=(len(words), 6)).astype(np.float32)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    static_model().save(str(folder), create_model_card=False)
    return folder


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    weights = encoders.minilm_folder() / "model.safetensors"
    damaged = tmp_path / "model.safetensors"
    content = bytearray(weights.read_bytes()[:100_000])
    damaged.write_bytes(content)
    with pytest.raises(AnmiError, match=r"model\.safetensors: SHA-256 is .* install the package again"):
        encoders.verify(damaged, encoders.MINILM_SHA256)


@pytest.mark.parametrize("name", ["minilm", "static", "organisation/model"])
def test_known_names_pass(name: str) -> None:
    encoders.check_name(name)


def test_an_existing_folder_passes(tmp_path: Path) -> None:
    encoders.check_name(str(tmp_path))


@pytest.mark.parametrize("name", ["minlm", "./minilm", "/nowhere/minilm", "a/b/c"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(AnmiError, match="unknown encoder"):
        encoders.check_name(name)


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(AnmiError, match='did you mean "minilm"'):
        encoders.check_name("minlm")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnmiError, match="could not be loaded"):
        encoders.load_encoder(str(tmp_path), tmp_path)


def test_a_folder_is_loaded_and_its_vectors_have_length_one(saved: Path, tmp_path: Path) -> None:
    model = encoders.load_encoder(str(saved), tmp_path)
    vectors = encoders.encode(model, ["red fox", "the blue whale", "den"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    table = model[0].embedding.weight.detach().numpy()
    mean = (table[WORDS.index("red")] + table[WORDS.index("fox")]) / 2
    np.testing.assert_allclose(vectors[0], mean / np.linalg.norm(mean), atol=1e-5)


def test_the_fingerprint_does_not_depend_on_the_folder(saved: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "another name"
    shutil.copytree(saved, renamed)
    first, second = (encoders.load_encoder(str(folder), tmp_path) for folder in (saved, renamed))
    assert encoders.fingerprint(first) == encoders.fingerprint(second)


def test_one_weight_changes_the_fingerprint() -> None:
    import torch

    model = static_model()
    before = encoders.fingerprint(model)
    with torch.no_grad():
        model[0].embedding.weight[3, 2] += 1e-6
    assert encoders.fingerprint(model) != before


def test_words_settings_and_prompts_change_the_fingerprint() -> None:
    swapped = [*WORDS[:2], *WORDS[3:], WORDS[2]]
    model, prompted = static_model(), static_model()
    prompted.prompts, prompted.default_prompt_name = {"query": "the"}, "query"
    prints = {
        encoders.fingerprint(model),
        encoders.fingerprint(static_model(words=swapped)),
        encoders.fingerprint(prompted),
        encoders.fingerprint(model, "bfloat16"),
        encoders.fingerprint(model, "float32", "query: "),
    }
    assert len(prints) == 5


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return encoders.load_encoder("minilm", tmp_path_factory.mktemp("none"), max_length=32)


def test_using_a_transformer_does_not_change_its_fingerprint(minilm: Any) -> None:
    before = encoders.fingerprint(minilm)
    encoders.encode(minilm, ["a red fox", "a text " * 100])
    assert encoders.fingerprint(minilm) == before


def test_length_and_pooling_of_a_transformer_are_part_of_its_fingerprint(minilm: Any) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    prints = {encoders.fingerprint(minilm)}
    for mode in ("mean", "cls"):
        other = SentenceTransformer(modules=[minilm[0], Pooling(384, mode), Normalize()], device="cpu")
        prints.add(encoders.fingerprint(other))
    minilm.max_seq_length = 31
    prints.add(encoders.fingerprint(minilm))
    minilm.max_seq_length = 32
    assert len(prints) == 3


def test_a_second_call_computes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = static_model(), ["red fox", "blue whale", "red fox"]
    with Store(tmp_path) as store:
        first = encoders.encode(model, texts, store)
        assert store.missing(encoders.fingerprint(model, "float32", ""), texts) == 0

        def fail(*_: object, **__: object) -> None:
            raise AssertionError("computed again")

        monkeypatch.setattr(model, "encode", fail)
        second = encoders.encode(model, texts, store)
    assert (first == second).all()
    assert (first[0] == first[2]).all()


def test_a_prompt_is_put_before_every_text_and_kept_apart_in_the_store(tmp_path: Path) -> None:
    model = static_model()
    with Store(tmp_path) as store:
        plain = encoders.encode(model, ["fox"], store)
        prompted = encoders.encode(model, ["fox"], store, prompt="red ")
    np.testing.assert_allclose(prompted, encoders.encode(model, ["red fox"]), atol=1e-6)
    assert not np.allclose(plain, prompted)


def test_no_texts_give_no_rows_of_the_right_width(tmp_path: Path) -> None:
    assert encoders.encode(static_model(), []).shape == (0, 6)


def test_the_order_of_texts_is_kept_whatever_their_length(minilm: Any, tmp_path: Path) -> None:
    texts = ["fox", "a much longer text about a red fox and its den in the woods", "blue whale"]
    with Store(tmp_path) as store:
        together = encoders.encode(minilm, texts, store, precision="float32")
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(encoders.encode(minilm, [text], precision="float32")[0], vector, atol=1e-5)


def test_a_longer_limit_than_the_models_own_is_not_taken() -> None:
    model = encoders.load_encoder("minilm", Path("unused"), max_length=100_000)
    assert model.max_seq_length <= 512
