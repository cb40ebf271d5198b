"""A corpus of random words that the tests of search share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

WORDS = [f"word{i}" for i in range(60)]
SETTINGS: dict[str, Any] = {"encoder": {"max_length": 256, "precision": "float32", "batch_size": 8}}


def corpus(count: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(count)]
    ids = [f"d{i}" for i in range(count)]
    return pd.DataFrame({"document_id": ids, "title": "", "text": texts, "metadata": "{}"})
