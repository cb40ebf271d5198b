"""A corpus of random words that the tests of search share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anmi.retrieval.encoders import Encoder, EncoderSettings
from anmi.retrieval.index import build_index
from anmi.search import Part

WORDS = [f"word{i}" for i in range(60)]
ENCODER: dict[str, Any] = {"max_length": 256, "precision": "float32", "tokens_per_pass": 2048}


def part(name: str, vectors: Any, model: Path, spread: float = 1.0) -> Part:
    """A retriever as a part of a search over :func:`corpus`."""
    ids = [f"d{row}" for row in range(vectors.shape[0])]
    encoder = Encoder(EncoderSettings(encoder=str(model), **ENCODER), model.parent)
    return Part(name, build_index(vectors, ids), encoder, spread)


def corpus(count: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(count)]
    ids = [f"d{i}" for i in range(count)]
    return pd.DataFrame({"document_id": ids, "title": "", "text": texts, "metadata": "{}"})
