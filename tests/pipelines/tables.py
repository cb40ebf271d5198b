"""Small tables that tests of several stages share."""

from __future__ import annotations

from typing import Any

import pandas as pd

RELATED = ["document_id", "other_id", "kind"]
PSEUDO = ["query_id", "text", "document_id", "positive_text", "kind", "weight", "split"]


def frame(columns: str, *rows: Any, **constants: Any) -> pd.DataFrame:
    """A table of rows, and columns of one value."""
    return pd.DataFrame(rows, columns=columns.split()).assign(**constants)


NONE_RELATED = pd.DataFrame(columns=RELATED, dtype=str)
NO_PSEUDO = pd.DataFrame(columns=PSEUDO)
NO_MARKS = frame("query_id document_id relevance")


def corpus_of(texts: list[str]) -> pd.DataFrame:
    """A corpus of the texts, d0, d1, …."""
    rows = ((f"d{number}", "", text, "{}") for number, text in enumerate(texts))
    return frame("document_id title text metadata", *rows)


def labels_of(*pairs: str, **constants: Any) -> pd.DataFrame:
    """Labels written as ``q0 d0``."""
    rows = (pair.split() for pair in pairs)
    return frame("query_id document_id", *rows, relevance=1, **constants)
