from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from anmi.retrieval.encoders import encode
from anmi.retrieval.kinds import is_routed, is_static, two_encoders

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
        assert np.allclose(encode(model, TEXTS, role=role), encode(shared, TEXTS, role=role), atol=1e-6)
    assert is_routed(model)
    assert is_static(model)
    assert not is_routed(shared)
    assert model.prompts == shared.prompts
    assert two_encoders(model) is model


def test_the_weights_are_separate_from_each_other_and_from_the_original(shared: Any, two: Any) -> None:
    assert np.allclose(encode(two, TEXTS, role="document"), encode(shared, TEXTS, role="document"), atol=1e-6)
    assert not np.allclose(encode(two, TEXTS, role="query"), encode(shared, TEXTS, role="query"))
    assert len({p.data_ptr() for model in (shared, two) for p in model.parameters()}) == 3
