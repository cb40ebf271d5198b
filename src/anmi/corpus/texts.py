"""The one text of a document."""

from __future__ import annotations

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
