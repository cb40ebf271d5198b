"""Normalisation and the map of duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.duplicates import find_duplicates, normalised


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße", "STRASSE"),
        ("ﬁne  tuning", "fine\ttuning."),
        ("１２ ＡＢ", "12 ab"),
        ("한국어", "한국어"),
        ("\ufeffLos Panthers", "los panthers"),
        ("co-operate", "co operate"),
    ],
)
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
