"""Corpora by hand, and corpora that hypothesis makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import pytest

Corpus = Callable[..., pd.DataFrame]


@pytest.fixture
def corpus() -> Corpus:
    """Make a corpus of texts, with titles and metadata where they are given."""

    def make(texts: Sequence[str], titles: Sequence[str] = (), metadata: Sequence[str] = ()) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "document_id": [f"d{place}" for place in range(len(texts))],
                "title": pd.Series(titles or [""] * len(texts), dtype=object),
                "text": pd.Series(texts, dtype=object),
                "metadata": pd.Series(metadata or ["{}"] * len(texts), dtype=object),
            }
        )

    return make
