from __future__ import annotations

import math
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.hardness import hardness

SCRIPT = "script"


def slow(text: str) -> tuple[float, float, float]:
    """Words, entropy and punctuation share, a character at a time (scripts without ideographs, no apostrophes)."""
    words, inside = 0, False
    for character in text:
        is_word = unicodedata.category(character)[0] in "LMN"
        words += is_word and not inside
        inside = is_word
    shares = [n / len(text) for n in Counter(text).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    marks = sum(unicodedata.category(c)[0] in "PS" for c in text)
    return float(words), entropy, marks / max(len(text), 1)


@given(st.lists(st.text("abc dé12,?$ \n", max_size=60), max_size=8))
def test_the_parts_are_those_of_a_slow_count(texts: list[str]) -> None:
    found = hardness(texts, SCRIPT)
    for i, text in enumerate(texts):
        tokens, entropy, marks = slow(text)
        assert found.tokens[i] == tokens
        assert found.entropy[i] == pytest.approx(entropy, abs=1e-12)
        assert found.punctuation[i] == pytest.approx(marks)
        value = 0.35 * min(tokens / 24, 1) + 0.25 * min(entropy / 4, 1) + 0.2 * min(marks / 0.25, 1)
        assert found.value[i] == pytest.approx(value, abs=1e-12)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_any_text_lies_between_0_and_1_and_depends_on_itself_alone(texts: list[str]) -> None:
    found = hardness(texts, SCRIPT)
    assert ((found.value >= 0) & (found.value <= 1)).all()
    assert found.value.tolist() == [hardness([text], SCRIPT).value.item() for text in texts]


def test_each_part_makes_a_query_harder() -> None:
    easy = "how old is it"
    longer, marked, mixed = "how old is it how old is it", "how, old? is, it?", "how old is यह"
    value = hardness([easy, longer, marked, mixed], SCRIPT).value
    assert (value[1:] > value[0]).all()
    assert hardness([easy + " a" * n for n in (0, 20, 40, 80)], SCRIPT).tokens.tolist() == [4, 24, 44, 84]
    # The parts are capped: from 24 words on length adds nothing.
    long = [" ".join(["word"] * n) for n in (24, 25, 500)]
    found = hardness(long, SCRIPT)
    assert np.allclose(found.value, 0.35 + 0.25 * found.entropy / 4)


def test_an_empty_query_and_no_query() -> None:
    assert hardness([""], SCRIPT).value.tolist() == [0.0]
    assert hardness([], SCRIPT).value.shape == (0,)
