from __future__ import annotations

from typing import Any

import numpy as np
import torch

from anmi.retrieval.encoders import encode
from anmi.retrieval.kinds import is_routed, is_static, two_encoders

TEXTS = ["a b", "c", "b b a"]


def test_two_encoders_begin_alike_and_have_weights_of_their_own(word_encoder: Any) -> None:
    shared = word_encoder(["a", "b", "c", "q"], dimension=6, prompts={"query": "q ", "document": ""})
    model = two_encoders(shared)
    expected = {role: encode(shared, TEXTS, role=role) for role in ("query", "document")}
    for role, vectors in expected.items():
        assert np.allclose(encode(model, TEXTS, role=role), vectors, atol=1e-6)
    assert is_routed(model) and is_static(model) and not is_routed(shared)
    assert model.prompts == shared.prompts and two_encoders(model) is model
    with torch.no_grad():
        model[0].sub_modules["query"][0].embedding.weight += 1.0
    assert np.allclose(encode(model, TEXTS, role="document"), expected["document"], atol=1e-6)
    assert not np.allclose(encode(model, TEXTS, role="query"), expected["query"])
    assert np.allclose(encode(shared, TEXTS, role="query"), expected["query"])
