"""New terms, against sets of words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.evaluation.vocabulary import new_term_share, read_terms

WORDS = st.lists(st.sampled_from([f"w{i}" for i in range(25)]), max_size=8)
TEXTS = st.lists(WORDS, min_size=1, max_size=8)


def read(texts: Any, most: int = 1000) -> dict[str, Any]:
    return read_terms([" ".join(text) for text in texts], lambda rows: [row.split() for row in rows], most)[0]


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_expected_new_terms_leave_each_text_out(texts: Any) -> None:
    new = 0
    for i, text in enumerate(texts):
        others = {word for j, words in enumerate(texts) if j != i for word in words}
        new += sum(word not in others for word in text)
    found = read(texts)
    assert found["occurrences"] == sum(map(len, texts))
    assert found["expected"] == pytest.approx(new / max(found["occurrences"], 1))


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS)
def test_new_terms_are_those_that_the_reference_has_nowhere(one: Any, two: Any) -> None:
    known = {word for text in one for word in text}
    words = [word for text in two for word in text]
    expected = sum(word not in known for word in words) / max(len(words), 1)
    assert new_term_share(read(one), read(two)) == pytest.approx(expected)


def test_the_rarest_terms_are_left_out_all_of_one_frequency_together() -> None:
    found = read([["a", "b", "c"], ["a", "b", "d"], ["a"], ["a"]], most=3)
    assert (found["terms"], found["texts"]) == (2, 4)
    # c and d are new again, since nothing tells them from what was never there.
    assert new_term_share(found, read([["a", "b", "c", "d"]])) == pytest.approx(1 / 2)
    # A further text would find "b" kept only if two others have it.
    assert found["expected"] == pytest.approx(4 / 8)


def test_the_largest_vocabulary_is_small_and_hardly_ever_wrong() -> None:
    found = read([[f"term{i}" for i in range(200_000)]], most=200_000)
    assert found["terms"] == pytest.approx(200_000, abs=30)
    assert len(found["encoded"]) < 1_000_000
    assert new_term_share(found, read([[f"other{i}" for i in range(200_000)]], most=200_000)) > 1 - 4e-4


def test_of_no_text_nothing_is_new() -> None:
    assert new_term_share(read([["a"]]), read([])) == read([])["expected"] == 0
