"""The one text of a document, and the values of its metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from anmi.corpus.columns import arrow


def joined_texts(corpus: pd.DataFrame) -> pa.LargeStringArray:
    """Return title and text of every document joined by a blank, in corpus order, as an Arrow array."""
    blank = pa.scalar(" ", pa.large_string())
    joined = pc.binary_join_element_wise(arrow(corpus["title"]), arrow(corpus["text"]), blank)
    return arrow(pc.utf8_trim_whitespace(joined))


def document_texts(corpus: pd.DataFrame) -> list[str]:
    """Return title and text of every document joined by a blank, in corpus order.

    Examples
    --------
    >>> document_texts(pd.DataFrame({"title": ["", "A"], "text": ["b", "c"]}))
    ['b', 'A c']
    """
    found: list[str] = joined_texts(corpus).to_pylist()
    return found


def values_of(metadata: Iterable[str | None], name: str, default: str) -> list[str]:
    """Return one entry of each JSON object, and the default where it is missing or empty.

    Examples
    --------
    >>> values_of(['{"source": "sae4k"}', "{}", None], "source", "unknown")
    ['sae4k', 'unknown', 'unknown']
    """
    # Metadata repeat, texts do not; and what does not say the name, or may say it by escapes, need not be read.
    known: dict[str, str] = {}
    said = json.dumps(name)
    result = []
    for text in metadata:
        key = text if isinstance(text, str) else ""
        if key not in known:
            value = json.loads(key).get(name) if said in key or "\\" in key else None
            known[key] = str(value) if value else default
        result.append(known[key])
    return result


def values_by_id(table: pd.DataFrame, key: str, name: str, default: str) -> dict[str, str]:
    """Return an entry of the metadata by identifier, from a table with the columns ``key`` and ``metadata``."""
    return dict(zip(table[key], values_of(table.metadata, name, default), strict=True))
