"""Encoders by name, checked weights, fingerprints of what a model computes, and the cache in front of it."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anmi.engine.threads import for_threads, in_threads
from anmi.retrieval import encoders
from anmi.retrieval.kinds import is_routed, is_static, quiet, two_encoders
from anmi.store import Store

WORDS = ["[UNK]", "[PAD]", "red", "fox", "blue", "whale", "den", "the"]


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return encoders.load_encoder("minilm", tmp_path_factory.mktemp("none"), max_length=32)


LONG = ["red fox den the blue whale " * 3]


@pytest.fixture(scope="module")
def network(network_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network") / "network"
    network_encoder(WORDS[2:]).save(str(folder), create_model_card=False)
    return folder


def loaded(folder: Path, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    with quiet():
        return SentenceTransformer(str(folder), device="cpu", **options)


def copied(folder: Path, target: Path, file: str, **changes: Any) -> Path:
    """Copy a model, with changes of one of its files of settings."""
    shutil.copytree(folder, target)
    settings = json.loads((target / file).read_text())
    assert settings.keys() >= changes.keys()
    (target / file).write_text(json.dumps(settings | changes))
    return target


@pytest.mark.parametrize("change", [
    lambda model: setattr(model, "truncate_dim", 4),
    lambda model: setattr(model.tokenizer, "truncation_side", "left"),
    lambda model: setattr(model[1], "pooling_mode", "max"),
    lambda model: setattr(model, "max_seq_length", 5),
], ids=["shorter", "from the left", "by maximum", "at most five"])  # fmt: skip
def test_a_setting_that_changes_the_vectors_changes_the_fingerprint(
    network: Path, change: Callable[[Any], None]
) -> None:
    model = loaded(network)
    vectors, mark = model.encode(LONG), encoders.fingerprint(model)
    change(model)
    changed = model.encode(LONG)
    assert changed.shape != vectors.shape or not np.allclose(changed, vectors, atol=1e-3)
    assert encoders.fingerprint(model) != mark


@pytest.mark.parametrize("changes", [{"hidden_act": "relu"}, {"layer_norm_eps": 0.5}])
def test_the_configuration_of_a_network_changes_the_fingerprint(
    network: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    before, after = loaded(network), loaded(copied(network, tmp_path / "changed", "config.json", **changes))
    assert not np.allclose(before.encode(LONG), after.encode(LONG), atol=1e-4)
    assert encoders.fingerprint(before) != encoders.fingerprint(after)


def test_what_does_not_change_the_vectors_does_not_change_the_fingerprint(network: Path, tmp_path: Path) -> None:
    model = loaded(network)
    mark = encoders.fingerprint(model)
    newer = {"transformers_version": "9.9.9", "architectures": ["BertForMaskedLM"]}
    assert encoders.fingerprint(loaded(copied(network, tmp_path / "newer", "config.json", **newer))) == mark
    assert encoders.fingerprint(loaded(network, model_kwargs={"attn_implementation": "eager"})) == mark
    model.save(str(tmp_path / "again"), create_model_card=False)
    assert encoders.fingerprint(loaded(tmp_path / "again")) == mark


def test_the_order_of_a_set_does_not_change_the_fingerprint() -> None:
    """Every process orders sets in its own way."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    class Turned(set[str]):
        turned = False

        def __iter__(self) -> Iterator[str]:
            return iter(sorted(super().__iter__(), reverse=self.turned))

    prints = set()
    for Turned.turned in (False, True):
        words = WhitespaceTokenizer(WORDS)
        words.stop_words = Turned({"the", "a", "an"})
        modules = [WordEmbeddings(words, np.ones((len(WORDS), 6), np.float32)), Pooling(6)]
        prints.add(encoders.fingerprint(SentenceTransformer(modules=modules, device="cpu")))
    assert len(prints) == 1


def test_a_second_call_computes_nothing(word_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = word_encoder(WORDS[1:]), ["red fox", "blue whale", "red fox"]
    with Store(tmp_path) as store:
        first = encoders.encode(model, texts, store)
        assert None not in store.read(store.keys(encoders.fingerprint(model, "float32", ""), texts))

        def fail(*_: object, **__: object) -> None:
            raise AssertionError("computed again")

        monkeypatch.setattr(encoders, "embed", fail)
        second = encoders.encode(model, texts, store)
    assert (first == second).all()
    assert (first[0] == first[2]).all()


def test_two_threads_ask_one_model_at_once(minilm: Any) -> None:
    texts = [[f"text {number} of thread {thread}" + " and more" * number for number in range(12)] for thread in (0, 1)]
    expected = [encoders.embed(minilm, part, "float32", 4, None) for part in texts]
    shared = for_threads(copy.deepcopy(minilm))
    for _ in range(3):
        found = [*in_threads(lambda part: encoders.embed(shared, part, "float32", 4, None), texts, 2, 1)]
        assert all(np.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True))


def test_two_encoders_begin_alike_and_have_weights_of_their_own(word_encoder: Any) -> None:
    shared = word_encoder(["a", "b", "c", "q"], dimension=6, prompts={"query": "q ", "document": ""})
    import torch

    model = two_encoders(shared)
    expected = {role: encoders.encode(shared, ["a b", "c", "b b a"], role=role) for role in ("query", "document")}
    for role, vectors in expected.items():
        assert np.allclose(encoders.encode(model, ["a b", "c", "b b a"], role=role), vectors, atol=1e-6)
    assert is_routed(model) and is_static(model) and not is_routed(shared)
    assert model.prompts == shared.prompts and two_encoders(model) is model
    with torch.no_grad():
        model[0].sub_modules["query"][0].embedding.weight += 1.0
    assert np.allclose(encoders.encode(model, ["a b", "c", "b b a"], role="document"), expected["document"], atol=1e-6)
    assert not np.allclose(encoders.encode(model, ["a b", "c", "b b a"], role="query"), expected["query"])
    assert np.allclose(encoders.encode(shared, ["a b", "c", "b b a"], role="query"), expected["query"])
