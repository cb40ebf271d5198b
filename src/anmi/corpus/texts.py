"""The one text of a document."""

from __future__ import annotations

import pandas as pd


def document_texts(corpus: pd.DataFrame) -> list[str]:
    """Return title and text of every document joined by a blank, in corpus order.

    Examples
    --------
    >>> document_texts(pd.DataFrame({"title": ["", "A"], "text": ["b", "c"]}))
    ['b', 'A c']
    """
    return [f"{title} {text}".strip() for title, text in zip(corpus["title"], corpus["text"], strict=True)]
