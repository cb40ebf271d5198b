"""Language, code mixing and hardness of queries."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.hardness import hardness, mixed_share, split_words
from anmi.corpus.sentences import detect_language, language_code
from anmi.errors import AnmiError
from anmi.pipelines.params import IngestionParams


@pytest.mark.parametrize(
    ("given", "code"),
    [("hi", "hi"), ("EN-us", "en"), ("pt_BR", "pt"), ("zh-Hant", "zh"), (" ta ", "ta"), ("nb", "no"), ("my", "my")],
)
def test_codes_with_region_and_in_capitals(given: str, code: str) -> None:
    assert language_code(given) == code
    assert IngestionParams(language=given).language == code


@pytest.mark.parametrize(("given", "said"), [
    ("hindi", 'did you mean "hi"?'), ("Thai", 'did you mean "th"?'), ("xylo", "expected: an ISO 639-1 code"),
])  # fmt: skip
def test_an_unknown_language_is_refused(given: str, said: str) -> None:
    with pytest.raises(AnmiError) as refused:
        language_code(given)
    assert f'there is no language "{given}"; {said}' in str(refused.value)


def test_what_is_recognised_can_be_given() -> None:
    import py3langid

    assert all(language_code(code) for code, _ in py3langid.rank("Words"))
    assert language_code(detect_language(["यह हिन्दी में लिखा हुआ एक वाक्य है।"])) == "hi"


def share(*texts: str, **more: Any) -> list[float]:
    return [round(mixed_share(split_words(text), **more), 3) for text in texts]


def test_by_script_every_word_of_another_script_is_mixed_in() -> None:
    texts = ["what is कल का मौसम", "mausam kaisa hai", "12 34", "", "AB 中文字"]
    assert share(*texts, by="script") == [0.4, 0.0, 0.0, 0.0, 0.25]


def test_two_languages_of_one_script() -> None:
    mixed, english, spanish = share(
        "How many points did la defensa de los Panteras surrender",
        "How many points did the Panthers defense surrender",
        "¿Cuántos puntos cedió la defensa de los Panteras?",
    )
    assert mixed >= 0.4
    assert english == spanish == 0.0


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
    found = hardness(texts, "script")
    for i, text in enumerate(texts):
        tokens, entropy, marks = slow(text)
        value = 0.35 * min(tokens / 24, 1) + 0.25 * min(entropy / 4, 1) + 0.2 * min(marks / 0.25, 1)
        assert found[i] == pytest.approx(value, abs=1e-12)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_any_text_lies_between_0_and_1_and_depends_on_itself_alone(texts: list[str]) -> None:
    found = hardness(texts, "script")
    assert ((found >= 0) & (found <= 1)).all()
    assert found.tolist() == [hardness([text], "script").item() for text in texts]


def test_words_of_another_script_make_a_query_harder() -> None:
    plain, mixed = hardness(["how old is it", "how old is यह"], "script")
    assert mixed > plain + 0.04
