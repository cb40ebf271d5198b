"""What runs an encoder: the same vectors by ONNX Runtime, near ones with 8 bits, and a choice that stays."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anmi.errors import AnmiError
from anmi.retrieval import backend
from anmi.retrieval.backend import Parity, choose, parity
from anmi.retrieval.encoders import embed, embedding_fingerprint, encode, load_encoder
from anmi.retrieval.onnx import is_exportable
from anmi.store import Store

pytest.importorskip("onnxruntime")

WORDS = ["fox", "red", "den", "runs", "far", "over", "hill", "snow", "owl", "night"]
TEXTS = [" ".join(WORDS[(i + j * (i % 3 + 1)) % 10] for j in range(1 + i % 9)) for i in range(30)]


@pytest.fixture(scope="module")
def folder(network_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer with a prompt."""
    target = tmp_path_factory.mktemp("models") / "tiny"
    network_encoder(WORDS, prompts={"query": "red ", "document": ""}).save(str(target), create_model_card=False)
    return target


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tests keep what was exported."""
    return tmp_path_factory.mktemp("store") / "models"


def test_onnx_gives_the_vectors_of_torch_with_their_prompt_and_length(folder: Path, models: Path) -> None:
    model = load_encoder(str(folder), models, 7)
    for role in ("query", "document"):
        expected = embed(model, TEXTS, "float32", 8, role)  # type: ignore[arg-type]
        np.testing.assert_allclose(embed(model, TEXTS, "onnx-float32", 8, role), expected, atol=2e-6)  # type: ignore[arg-type]
    # The model itself runs by torch as before.
    np.testing.assert_array_equal(embed(model, TEXTS, "float32", 8, "document"), expected)


def test_vectors_of_eight_bits_are_near_and_do_not_depend_on_what_is_encoded_with_them(
    folder: Path, models: Path
) -> None:
    model = load_encoder(str(folder), models)
    together = embed(model, TEXTS, "onnx-int8", 64, "document")
    assert not np.array_equal(together, embed(model, TEXTS, "float32", 64, "document"))
    assert parity(together, embed(model, TEXTS, "float32", 64, "document")).mean_cosine > 0.98
    alone = np.concatenate([embed(model, [text], "onnx-int8", 64, "document") for text in reversed(TEXTS)])[::-1]
    np.testing.assert_array_equal(together, alone)


def test_what_computed_a_vector_is_part_of_its_fingerprint(folder: Path, models: Path, tmp_path: Path) -> None:
    model = load_encoder(str(folder), models)
    ways = ("float32", "onnx-float32", "onnx-int8")
    assert len({embedding_fingerprint(model, way, "document") for way in ways}) == 3
    with Store(tmp_path) as store:
        found = [encode(model, TEXTS, store, way, role="document") for way in ways]
        assert len(store) == 3 * len(set(TEXTS))
        again = [encode(model, TEXTS, store, way, role="document") for way in ways]
    assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))


def test_the_choice_is_measured_once_and_remembered(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_encoder(str(folder), tmp_path)
    with caplog.at_level(logging.INFO, backend.__name__):
        chosen = choose(model, TEXTS, "auto", "float32", 8, tmp_path)
    assert chosen in ("float32", "onnx-float32", "onnx-int8")
    assert f"run by {chosen} (documents per processor second: float32 " in caplog.text
    monkeypatch.setattr(backend, "_measure", lambda *_: pytest.fail("it was measured before"))
    assert choose(model, TEXTS[:3], "auto", "float32", 8, tmp_path) == chosen


@pytest.mark.parametrize(("asked", "expected"), [("auto", {"float32", "onnx-float32"}), ("onnx-int8", {"float32"})])
def test_vectors_that_are_too_far_give_way_with_a_word(
    folder: Path, tmp_path: Path, asked: Any, expected: set[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(backend, "MEAN_COSINE", 0.999999)
    assert choose(load_encoder(str(folder), tmp_path), TEXTS, asked, "float32", 8, tmp_path) in expected
    assert "By onnx-int8 the encoder is too far from torch (cosine " in caplog.text


def test_torch_runs_what_onnx_cannot(
    word_encoder: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    static = word_encoder(WORDS, dimension=6, seed=0)
    assert not is_exportable(static)
    assert choose(static, TEXTS, "onnx-int8", "auto", 8, tmp_path) == "float32"
    model = load_encoder(str(folder), tmp_path)
    assert choose(model, TEXTS, "torch", "bfloat16", 8, tmp_path) == "bfloat16"
    # A network whose class cannot be written.
    broken = load_encoder(str(folder), tmp_path / "other")
    monkeypatch.setattr(type(broken[0].model), "set_attn_implementation", lambda *_: 1 / 0)
    assert choose(broken, TEXTS, "auto", "float32", 8, tmp_path / "other") == "float32"
    assert "be written as ONNX (division by zero): set its backend to torch; the encoder is run by torch" in caplog.text
    monkeypatch.setattr(backend, "installed", lambda: False)
    assert choose(model, TEXTS, "auto", "float32", 8, tmp_path) == "float32"
    with pytest.raises(AnmiError, match=r'pip install "anmi\[onnx\]"'):
        choose(model, TEXTS, "onnx", "float32", 8, tmp_path)


def test_parity_counts_neighbours_and_cosines() -> None:
    exact = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    assert parity(exact, exact) == pytest.approx(Parity(1, 1, 1))
    turned = exact.copy()
    turned[3] = -exact[3]
    found = parity(turned, exact)
    assert (found.mean_cosine, found.worst_cosine) == pytest.approx((38 / 40, -1))
    assert not found.good
    assert found.neighbours < 1
