"""Encoding with a table of token vectors, its tokens kept."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from anmi.evaluation import retrieval as static_tokens
from anmi.evaluation.retrieval import encode_static, is_readable
from anmi.retrieval.encoders import encode

WORDS = [f"w{i}" for i in range(50)]


@pytest.fixture
def encoder(word_encoder: Any) -> Any:
    return partial(word_encoder, WORDS)


def texts(count: int) -> list[str]:
    rng = np.random.default_rng(count)
    return ["", *(" ".join(rng.choice(WORDS, rng.integers(1, 30))) for _ in range(count - 1))]


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_tokens, "_KEPT", type(static_tokens._KEPT)())


@pytest.mark.parametrize("at_once", [1, 7, 4096])
def test_vectors_are_those_of_encode(encoder: Any, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(static_tokens, "_AT_ONCE", at_once)
    model, some = encoder(), texts(40)
    assert is_readable(model)
    for _ in range(2):
        assert np.array_equal(encode_static(model, some), encode(model, some))
    assert encode_static(model, []).shape == (0, 8)


def test_changed_weights_and_another_vocabulary_are_seen(word_encoder: Any, encoder: Any) -> None:
    some = texts(20)
    first = encode_static(encoder(), some)
    retrained, other = encoder(seed=1), word_encoder(WORDS[::-1])
    assert np.array_equal(encode_static(retrained, some), encode(retrained, some))
    assert np.array_equal(encode_static(other, some), encode(other, some))
    assert not np.array_equal(encode_static(retrained, some), first)


def test_texts_are_tokenised_once_and_memory_is_bounded(encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, some = encoder(), texts(30)
    encode_static(model, some)
    with monkeypatch.context() as patch:
        patch.setattr(type(model), "preprocess", lambda *_: pytest.fail("tokenised again"))
        encode_static(model, list(some))
    monkeypatch.setattr(static_tokens, "_MOST_TOKENS", 5)
    encode_static(model, texts(31))
    assert len(static_tokens._KEPT) == 1, "what alone is too much is not kept"
    encode_static(model, ["w1 w2"])
    assert sum(len(tokens) for tokens, _ in static_tokens._KEPT.values()) <= 5
