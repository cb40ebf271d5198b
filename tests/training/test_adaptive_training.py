"""Training by hardness and with two encoders, from rows to weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.mined import mined

from anmi.retrieval.encoders import encode, load_encoder
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

COUNT = 20


@pytest.fixture
def encoder(word_encoder: Any) -> Any:
    return partial(word_encoder, ["?", *(f"w{i}" for i in range(3 * COUNT))], dimension=16)


def rows() -> pd.DataFrame:
    """Half of the queries are long and full of question marks."""
    queries = [" ".join([f"w{i}", *["?"] * (12 * (i % 2))]) for i in range(COUNT)]
    return mined(queries, [f"w{i + COUNT} w{i + 2 * COUNT}" for i in range(COUNT)], 3)


@pytest.fixture
def fit(encoder: Any) -> Any:
    def run(output: Path | None = None, **changes: Any) -> Any:
        options = TrainingOptions(**{"epochs": 6, "batch_size": 8, "learning_rate": 0.05, **changes})
        return train(rows(), encoder=encoder(), options=options, output=output, seed=1)

    return run


def weights(result: Any) -> list[torch.Tensor]:
    return [p.detach() for p in result.model.parameters()]


def test_two_encoders_learn_the_pairs_and_the_hardness_and_are_saved(encoder: Any, fit: Any, tmp_path: Path) -> None:
    result = fit(tmp_path / "model", epochs=30, encoders="two", hardness="hans")
    error = result.log["hardness_error"]
    assert error.iloc[-3:].mean() < 0.4 * error.iloc[:3].mean() and result.log["negatives"].between(1, 3).all()
    data, start = rows(), encoder()
    texts = {"query": data["query"].tolist(), "document": data["positive"].tolist()}
    found = {role: encode(result.model, list(given), role=role) for role, given in texts.items()}
    assert ((found["query"] @ found["document"].T).argmax(1) == np.arange(COUNT)).mean() > 0.9
    assert not np.allclose(encode(result.model, texts["query"], role="document"), found["query"])
    assert not np.allclose(encode(start, texts["query"]), found["query"])
    loaded = load_encoder(str(tmp_path / "model"), tmp_path)
    for role, vectors in found.items():
        assert np.array_equal(encode(loaded, texts[role], role=role), vectors)
