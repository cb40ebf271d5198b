from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anmi.errors import AnmiError
from anmi.evaluation.retrieval import search
from anmi.retrieval.encoders import encode, load_encoder
from anmi.retrieval.kinds import is_routed, is_static, two_encoders
from anmi.store import Store
from anmi.training.batch import Tokeniser

TEXTS = ["a b", "c", "b b a"]


@pytest.fixture
def shared(word_encoder: Any) -> Any:
    return word_encoder(["a", "b", "c", "q"], dimension=6, prompts={"query": "q ", "document": ""})


@pytest.fixture
def two(shared: Any) -> Any:
    """Two encoders, that of the queries moved away."""
    model = two_encoders(shared)
    with torch.no_grad():
        model[0].sub_modules["query"][0].embedding.weight += 1.0
    return model


def test_before_training_both_encode_as_the_one_they_were_made_from(shared: Any) -> None:
    model = two_encoders(shared)
    for role in ("query", "document"):
        assert np.array_equal(encode(model, TEXTS, role=role), encode(shared, TEXTS, role=role))
    assert is_routed(model)
    assert is_static(model)
    assert not is_routed(shared)
    assert model.prompts == shared.prompts
    assert two_encoders(model) is model


def test_the_weights_are_separate_from_each_other_and_from_the_original(shared: Any, two: Any) -> None:
    assert np.array_equal(encode(two, TEXTS, role="document"), encode(shared, TEXTS, role="document"))
    assert not np.allclose(encode(two, TEXTS, role="query"), encode(shared, TEXTS, role="query"))
    assert len({p.data_ptr() for model in (shared, two) for p in model.parameters()}) == 3


def test_saved_as_safetensors_and_loaded_it_is_the_same(two: Any, tmp_path: Path) -> None:
    two.save(str(tmp_path / "model"), create_model_card=False)
    assert {path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()} <= {".json", ".safetensors"}
    again = load_encoder(str(tmp_path / "model"), tmp_path)
    for role in ("query", "document"):
        assert np.array_equal(encode(again, TEXTS, role=role), encode(two, TEXTS, role=role))


def test_search_sends_each_side_to_its_encoder(two: Any) -> None:
    _, scores = search(two, TEXTS[:1], TEXTS[1:2], 1)
    assert scores.item() == pytest.approx(float(two.encode_query(TEXTS[0]) @ two.encode_document(TEXTS[1])), abs=1e-6)


def test_the_store_keeps_the_sides_apart(two: Any, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        query, document = (encode(two, TEXTS, store, role=role) for role in ("query", "document"))
        assert not np.allclose(query, document)
        assert np.array_equal(encode(two, TEXTS, store, role="query"), query)


def test_a_text_of_unknown_role_is_refused(two: Any) -> None:
    with pytest.raises(AnmiError, match="separate weights"):
        encode(two, TEXTS)


def test_the_training_tokens_say_where_they_go(two: Any) -> None:
    tokenise = Tokeniser(two, None)
    for role in ("query", "document"):
        features = tokenise(["a"], role)
        expected = two.preprocess(["a"], prompt=two.prompts[role] or None, task=role)
        assert features["task"] == role
        assert features["input_ids"].tolist() == expected["input_ids"].tolist()
        found = two(dict(features))["sentence_embedding"]
        assert torch.allclose(found, two(expected)["sentence_embedding"])
