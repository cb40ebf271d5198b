"""The module handles columns of texts as Arrow arrays, the text of a document, and its metadata as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Texts: TypeAlias = Sequence[str] | pd.Series | pa.Array | pa.ChunkedArray


def arrow(values: Texts) -> pa.LargeStringArray:
    """Return texts as one Arrow array; that of a column of texts shares its memory.

    Examples
    --------
    >>> arrow(["a", "b"]).to_pylist(), str(arrow(pd.Series([], dtype=object)).type)
    (['a', 'b'], 'large_string')
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values if isinstance(values, pd.Series) else list(values), from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values if values.type == pa.large_string() else values.cast(pa.large_string())


def column(values: Texts) -> pd.Series:
    """Return texts as a column of pandas' own kind of texts.

    Examples
    --------
    >>> column(["a"]).dtype == pd.Series(["a"], dtype="str").dtype
    True
    """
    dtype = pd.Series([], dtype="str").dtype
    found = arrow(values)
    # pandas before 3 has no such kind, and keeps objects.
    return pd.Series(dtype.__from_arrow__(found)) if hasattr(dtype, "__from_arrow__") else found.to_pandas()


def among(values: Texts, known: Texts) -> NDArray[np.bool_]:
    """Say for each text whether it is one of the others, bool [N]; pandas' ``isin`` makes a Python string of each.

    Examples
    --------
    >>> among(["a", "b"], pd.Series(["b", "c"])).tolist()
    [False, True]
    """
    return np.asarray(pc.is_in(arrow(values), value_set=arrow(known)).to_numpy(zero_copy_only=False), bool)


def containing(values: Texts, part: str) -> NDArray[np.int64]:
    """Return the places of the texts that contain a part, rising.

    Examples
    --------
    >>> containing(["ab", "c", "cab"], "ab").tolist()
    [0, 2]
    """
    return np.flatnonzero(pc.match_substring(arrow(values), part).to_numpy(zero_copy_only=False))


def taken(values: Texts, places: Iterable[int] | NDArray[np.int64]) -> list[str]:
    """Return the texts at some places.

    Examples
    --------
    >>> taken(pd.Series(["a", "b"]), [1])
    ['b']
    """
    found: list[str] = arrow(values).take(pa.array(np.asarray(places, dtype=np.int64))).to_pylist()
    return found


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


def clean(text: str) -> str:
    r"""Replace halves of surrogate pairs, which JSON can hold and no UTF-8 file can.

    Examples
    --------
    >>> clean("a\ud800")
    'a�'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: Any) -> str:
    """Return compact JSON with its characters as they are; what JSON has no form for, such as dates, as text."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


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
