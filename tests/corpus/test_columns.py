"""Columns of texts as Arrow arrays, against lists."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.texts import among, arrow, column, containing, document_texts, joined_bytes, taken

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=12)


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_a_column_answers_as_a_list_does(texts: list[str], known: list[str], skipped: int) -> None:
    series = pd.Series(texts, dtype="str")[skipped:]
    left = texts[skipped:]
    assert among(series, known).tolist() == [text in known for text in left]
    assert containing(series, "a").tolist() == [place for place, text in enumerate(left) if "a" in text]
    assert bytes(joined_bytes(arrow(series))) == "".join(left).encode()
    places = np.arange(len(left))[::-1]
    assert taken(series, places) == left[::-1]
    pd.testing.assert_series_equal(column(left), pd.Series(left, dtype="str"))


@given(TEXTS, TEXTS)
def test_texts_of_documents_are_title_and_text(titles: list[str], texts: list[str]) -> None:
    pairs = list(zip(titles, texts, strict=False))
    corpus = pd.DataFrame({"title": [one for one, _ in pairs], "text": [other for _, other in pairs]}, dtype="str")
    assert document_texts(corpus) == [f"{one} {other}".strip() for one, other in pairs]
