"""Checkpoints of every kind are encoded and trained as sentence-transformers does."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from tests.mined import mined

from anmi.errors import AnmiError
from anmi.retrieval.encoders import Encoder, EncoderSettings, fingerprint, load_encoder
from anmi.retrieval.kinds import two_encoders
from anmi.training.loop import training_arguments
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(30)]
TEXTS = ["w5 w6 w7", "w8", "", "w9 w4 w5 w6"]
INSTRUCTION = {"query": "w1 w2 w3 ", "document": ""}
LONG = f"w9 {'w8 ' * 5000}"
# The published model that each stands for, and what is special about it.
KINDS: dict[str, dict[str, Any]] = {
    "e5": {"prompts": {"query": "w1 ", "document": "w2 "}},
    "bge": {"pooling": "cls", "prompts": INSTRUCTION},
    "qwen3": {"pooling": "lasttoken", "prompts": INSTRUCTION, "pad_token": "[SEP]"},
    "decoder without a padding token": {"pooling": "lasttoken", "pad_token": None},
    "qwen3 of 8,192 tokens": {"pooling": "lasttoken", "prompts": INSTRUCTION, "longest": 8192},
    "router": {"prompts": INSTRUCTION},
    "qwen3 in bfloat16": {"pooling": "lasttoken", "prompts": INSTRUCTION},
    "e5 in float16": {"prompts": {"query": "w1 ", "document": "w2 "}},
}


@pytest.fixture(params=KINDS)
def checkpoint(request: Any, network_encoder: Any, tmp_path: Path) -> tuple[str, Any, list[str]]:
    """Return a saved model, the type of its weights, and texts."""
    model = network_encoder(WORDS, **KINDS[request.param])
    model.append(Normalize())
    if request.param == "router":
        model = two_encoders(model)
        model[0].sub_modules["document"][0].model.embeddings.word_embeddings.weight.data += 0.1
    dtype = getattr(torch, request.param.rpartition(" in ")[2], torch.float32)
    model.to(dtype).save(str(tmp_path / "checkpoint"), create_model_card=False)
    texts = [*TEXTS, LONG, f"{LONG} {'w7 ' * 200}"] if model.max_seq_length == 8192 else TEXTS
    return str(tmp_path / "checkpoint"), dtype, texts


def expected(folder: str, texts: list[str]) -> list[Any]:
    plain = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    if plain.tokenizer.pad_token is None:
        plain.tokenizer.pad_token = "[MASK]"
    return [plain.encode_query(texts), plain.encode_document(texts)]


def encoder(folder: str, models: Path) -> Encoder:
    settings = EncoderSettings(encoder=folder, precision="float32", max_length=8192)
    return Encoder(settings, models)


def test_every_kind_is_encoded_trained_and_saved(checkpoint: Any, tmp_path: Path) -> None:
    folder, dtype, texts = checkpoint
    start = encoder(folder, tmp_path)
    before = [start.encode(texts, "query"), start.encode(texts, "document")]
    np.testing.assert_allclose(before, expected(folder, texts), atol=1e-5)
    assert not np.allclose(before[0][-1], before[0][-2], atol=1e-4), "the end counts"

    rows = mined(["w4 w5", "w6", "w7 w8"], [texts[-1], "w11 w12", "w13"], 1)
    options = TrainingOptions(epochs=1, batch_size=3, learning_rate=1e-2, precision="float32")
    trained = tmp_path / "trained"
    train(rows, encoder=start.trainable(), options=options, output=trained, seed=1)
    after = [encoder(str(trained), tmp_path).encode(texts, role) for role in ("query", "document")]
    np.testing.assert_allclose(after, expected(str(trained), texts), atol=1e-5)
    assert SentenceTransformer(str(trained), device="cpu").dtype == dtype
    for moved, vectors in zip(after, before, strict=True):
        assert np.abs(moved - vectors).max(axis=1).min() > 1e-4


def test_attention_and_arguments_reach_the_network(network_encoder: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    network_encoder(WORDS).save(str(folder), create_model_card=False)
    marks = set()
    for attention in ("eager", "sdpa"):
        arguments = {"attention": attention, "model_kwargs": {"add_pooling_layer": False}}
        model = Encoder(EncoderSettings(encoder=str(folder), **arguments), tmp_path).trainable()
        assert model[0].model.config._attn_implementation == attention
        assert model[0].model.pooler is None
        marks.add(fingerprint(model))
    assert len(marks) == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"device": "cuda:9"}, "dense.device is cuda:9, and this machine has .*cpu: set it to"),
        ({"device": "cuda"}, "dense.device is cuda, and this machine has .*cpu: set it to"),
        ({"attention": "flash_attention_2"}, "flash.*dense.attention=null"),
    ],
)
def test_what_this_machine_does_not_have_is_named(
    settings: dict[str, Any], told: str, network_encoder: Any, tmp_path: Path
) -> None:
    if settings == {"device": "cuda"} and torch.cuda.is_available():
        pytest.skip("this machine has one")
    network_encoder(WORDS).save(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(AnmiError, match=f"(?i){told}"):
        load_encoder(str(tmp_path / "model"), tmp_path, **settings)


@pytest.mark.parametrize(
    "name", ["dtype", "device_map", "attn_implementation", "trust_remote_code"]
)
def test_an_argument_that_another_setting_gives_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} is not taken"):
        EncoderSettings(model_kwargs={name: True})


def test_training_stays_on_the_device_of_the_encoder(network_encoder: Any, tmp_path: Path) -> None:
    encoder = network_encoder(WORDS).to("meta")
    arguments = training_arguments(TrainingOptions(), encoder, 1, tmp_path, 2)
    assert arguments.device == encoder.device == torch.device("meta")


@contextmanager
def little_memory() -> Iterator[None]:
    """Let this process have 32 MB more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + (32 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("task", ["opening", "encoding texts"])
def test_memory_that_does_not_suffice_is_told_with_what_to_lower(
    task: str, network_encoder: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    network_encoder(WORDS, longest=500_000).save(str(folder), create_model_card=False)
    settings = {"attention": "eager", "precision": "float32", "max_length": 8192}
    encoder = Encoder(EncoderSettings(encoder=str(folder), **settings), tmp_path)
    if task == "encoding texts":
        encoder.encode(TEXTS)
    refused = pytest.raises(AnmiError, match=r"the memory does not suffice .*smaller model")
    with little_memory(), refused as told:
        encoder.encode([LONG])
    assert ("dense.tokens_per_pass" in str(told.value)) == (task == "encoding texts")


def test_weights_that_no_memory_holds_are_refused(network_encoder: Any, tmp_path: Path) -> None:
    network_encoder(WORDS).save(str(tmp_path), create_model_card=False)
    header = b'{"x": {"dtype": "BF16", "shape": [1048576, 1048576], "data_offsets": [0, 0]}}'
    length = len(header).to_bytes(8, "little")
    (tmp_path / "model.safetensors").write_bytes(length + header)
    with pytest.raises(AnmiError, match=r"take 4,096 GiB in float32, and cpu has"):
        load_encoder(str(tmp_path), tmp_path, device="cpu")
