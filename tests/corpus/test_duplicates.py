"""Normalisation and the map of duplicates."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.duplicates import find_duplicates, find_queries, normalised
from anmi.corpus.texts import document_texts


@pytest.mark.parametrize(("one", "other"), [
    ("Straße", "STRASSE"), ("ﬁne  tuning", "fine\ttuning."), ("１２ ＡＢ", "12 ab"), ("한국어", "한국어"),
    ("\ufeffLos Panthers", "los panthers"), ("co-operate", "co operate"),
])  # fmt: skip
def test_same_after_normalisation(one, other):
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(("one", "other"), [("कि", "की"), ("a < b", "a > b"), ("3 + 4", "3 = 4"), ("?", "!")])
def test_different_after_normalisation(one, other):
    assert normalised(one) != normalised(other)


@given(st.text(max_size=40))
def test_normalisation_is_idempotent(text):
    assert normalised(normalised(text)) == normalised(text)


@given(st.lists(st.sampled_from(["a b", "A b", "a  b", "c", "C", "c!", "d"]), max_size=20))
def test_duplicates_point_to_the_first_of_their_kind(texts):
    identifiers = [str(row) for row in range(len(texts))]
    found = find_duplicates(identifiers, texts)
    expected = []
    for row, text in enumerate(texts):
        first = next(i for i, other in enumerate(texts) if normalised(other) == normalised(text))
        if first != row:
            expected.append([str(row), str(first), "exact" if texts[first] == text else "normalised"])
    assert found.values.tolist() == expected
    assert not set(found["document_id"]) & set(found["duplicate_of"])


def queries_in(corpus, **texts):
    """What ``find_queries`` says of queries by their id, in a corpus of ``id: (title, text)``."""
    corpus = pd.DataFrame([(i, *parts) for i, parts in corpus.items()], columns=["document_id", "title", "text"])
    queries = pd.DataFrame({"query_id": list(texts), "normalised": [normalised(text) for text in texts.values()]})
    forms = [normalised(text) for text in document_texts(corpus)]
    return dict(zip(texts, find_queries(queries, corpus, forms), strict=True))


def test_a_query_is_the_document_of_its_id_and_text():
    corpus = {"a": ("", "Meat is murder."), "b": ("Diets", "Meat is food."), "c": ("Meat", "is life")}
    found = queries_in(corpus, a="meat is murder", b="Meat is food", c="Meat is life!", d="Meat is air")
    assert found == {"a": "a", "b": "b", "c": "c", "d": ""}


def test_ids_that_coincide_make_no_query_a_document():
    numbered = {str(i): ("", f"document {i}") for i in range(5)}
    assert set(queries_in(numbered, **{str(i): f"question {i}" for i in range(5)}).values()) == {""}


def test_a_query_with_the_text_of_a_document_of_another_id_is_found_and_its_own_id_comes_first():
    corpus = {"x": ("", "fox"), "q": ("", "Fox?"), "y": ("An", "owl")}
    assert queries_in(corpus, q="FOX", other="fox!", owl="an owl") == {"q": "q", "other": "x", "owl": "y"}
    # Without a title the text of a document of another id is not that of the query.
    assert queries_in(corpus, z="owl") == {"z": ""}
