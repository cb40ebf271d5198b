"""Whose prompts are put before texts, and what they change besides: fingerprints, the store, what is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from anmi.errors import AnmiError
from anmi.evaluation.retrieval import vectors
from anmi.retrieval.encoders import Role, embed_by_name, embedding_fingerprint, encode, load_encoder
from anmi.retrieval.kinds import OWN, Prompts, prompts_of, two_encoders
from anmi.store import Store
from anmi.training.batch import Tokeniser

WORDS = ["query", "passage", ":", "find", "red", "fox", "blue", "whale"]
TEXTS = ["red fox", "blue whale fox", "whale"]
BOTH = {"query": "query: ", "document": "passage: "}
ROLES: tuple[Role, Role] = ("query", "document")


@pytest.fixture(params=["static", "two", "network", "network without its prompt"])
def folder(request: Any, word_encoder: Any, network_encoder: Any, tmp_path: Path) -> Path:
    """A model with two prompts: a table, two tables, a network, and one that pools over the text alone."""
    if request.param in ("static", "two"):
        model = word_encoder(WORDS, prompts=BOTH)
        model = two_encoders(model) if request.param == "two" else model
        if request.param == "two":
            model[0].sub_modules["query"][0].embedding.weight.data += 1.0
    else:
        model = network_encoder(WORDS, include_prompt=request.param == "network", prompts=BOTH)
    model.save(str(tmp_path / "model"), create_model_card=False)
    return tmp_path / "model"


def as_told(model: Any, role: str, **options: Any) -> Any:
    """What sentence-transformers give for the role."""
    encoding = model.encode_query if role == "query" else model.encode_document
    return encoding(TEXTS, normalize_embeddings=True, **options)


@pytest.mark.parametrize("role", ROLES)
def test_every_way_to_encode_is_that_of_sentence_transformers(folder: Path, tmp_path: Path, role: Role) -> None:
    plain, model = SentenceTransformer(str(folder), device="cpu"), load_encoder(str(folder), tmp_path)
    expected = as_told(plain, role)
    assert not np.allclose(expected, as_told(plain, role, prompt=""), atol=1e-3), "the prompt matters"
    with Store(tmp_path / "store") as store:
        for found in (
            encode(model, TEXTS, precision="float32", role=role),
            encode(model, TEXTS, store, "float32", role=role),
            vectors(model, TEXTS, role, precision="float32"),
            embed_by_name(str(folder), tmp_path, None, OWN, "float32", 2, role, TEXTS),
        ):
            # The store keeps half of the digits.
            np.testing.assert_allclose(found, expected, atol=2.5e-4)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("longest", [None, 6])
def test_training_reads_the_tokens_that_are_encoded(
    folder: Path, tmp_path: Path, role: Role, longest: int | None
) -> None:
    model = load_encoder(str(folder), tmp_path, longest)
    features = Tokeniser(model, longest)(TEXTS, role)
    expected = model.preprocess(TEXTS, prompt=BOTH[role], task=role)
    assert features["input_ids"].tolist() == expected["input_ids"].tolist()
    first = WORDS.index(BOTH[role][:-2])
    assert first + (5 if "attention_mask" in features else 1) in features["input_ids"].flatten().tolist()
    if "attention_mask" in features and longest:
        assert features["input_ids"].shape[1] == longest, "the prompt's tokens are among them"
    found = model(features)["sentence_embedding"].detach().numpy()
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found, as_told(model, role), atol=1e-5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Prompts(query="find: "), BOTH | {"query": "find: "}),
        (Prompts(document=""), BOTH | {"document": ""}),
    ],
)
def test_what_is_set_wins_over_the_folder_and_an_empty_text_is_set(
    folder: Path, tmp_path: Path, given: Prompts, expected: dict[str, str]
) -> None:
    plain, model = SentenceTransformer(str(folder), device="cpu"), load_encoder(str(folder), tmp_path, prompts=given)
    assert prompts_of(model) == expected
    model.save(str(tmp_path / "again"), create_model_card=False)
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    for role in ROLES:
        wanted = as_told(plain, role, prompt=expected[role])
        np.testing.assert_allclose(encode(model, TEXTS, precision="float32", role=role), wanted, atol=1e-5)
        np.testing.assert_allclose(as_told(again, role), wanted, atol=1e-5)


def test_a_document_prompt_by_another_name_is_used_and_told(
    word_encoder: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    word_encoder(WORDS, prompts={"query": "query: ", "passage": "passage: "}).save(str(tmp_path / "model"))
    assert json.loads((tmp_path / "model" / "config_sentence_transformers.json").read_text())["prompts"]["passage"]
    model = load_encoder(str(tmp_path / "model"), tmp_path)
    assert prompts_of(model) == BOTH
    np.testing.assert_allclose(as_told(model, "document"), as_told(model, "document", prompt="passage: "))
    assert 'documents get the prompt "passage: "' in caplog.text
    without = load_encoder(str(tmp_path / "model"), tmp_path, prompts=Prompts(document=""))
    without.save(str(tmp_path / "without"))
    for bare in (without, load_encoder(str(tmp_path / "without"), tmp_path)):
        assert prompts_of(bare) == {"query": "query: ", "document": ""}


def test_a_default_prompt_is_used_for_neither_role_as_in_sentence_transformers(
    word_encoder: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = {"prompts": {"sts": "find: "}, "default_prompt_name": "sts"}
    word_encoder(WORDS, **named).save(str(tmp_path / "model"))
    word_encoder(WORDS).save(str(tmp_path / "plain"))
    plain, model = (load_encoder(str(tmp_path / name), tmp_path) for name in ("plain", "model"))
    for role in ROLES:
        np.testing.assert_allclose(encode(model, TEXTS, role=role), as_told(model, role), atol=1e-6)
        assert embedding_fingerprint(model, "auto", role) == embedding_fingerprint(plain, "auto", role)
    assert not np.allclose(model.encode(TEXTS), as_told(model, "query"))
    assert 'the default prompt "find: " of the model is not used' in caplog.text


def test_texts_of_unknown_role_are_refused_where_there_are_prompts(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AnmiError, match="not known what they are"):
        encode(load_encoder(str(folder), tmp_path), TEXTS)
