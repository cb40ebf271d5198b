from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.corpus.sentences import count_words, sentences

LANGUAGES = ["en", "de", "es", "ko", "zh", "ja", "th", "ar", "hi", "xx"]
# Texts with what ends sentences, lines and lists, which random characters seldom have.
PIECES = st.lists(
    st.sampled_from(["Dr. A", "one", "2.", "!", "?", "\n", "\n\n", "- ", ": ", " ", "雨。", "ฝน ", "\u3000"])
)
TEXTS = st.one_of(st.text(), st.text(st.characters()), PIECES.map("".join), PIECES.map(" ".join))


@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
@example(text="\ud800 One. \ud83d Two. \U0001f600 Three.", language="en")
@example(text="\x1c.\x85 a", language="en")
def test_sentences_hold_all_of_the_text_but_the_white_space_between_them(text: str, language: str) -> None:
    last, between = 0, ""
    for start, end in sentences(text, language):
        assert last <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        between, last = between + text[last:start], end
    assert not (between + text[last:]).strip()


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith saw it. It rained, e.g. in Rome.", ["Dr. Smith saw it.", "It rained, e.g. in Rome."]),
        ("en", "Steps:\n1. Cut.\n2. Sew it\n   well.", ["Steps:", "1. Cut.", "2. Sew it\n   well."]),
        ("en", "A line that was\nwrapped goes on.", ["A line that was\nwrapped goes on."]),
        ("de", "Es kostet z. B. 3 Euro. Das geht.", ["Es kostet z. B. 3 Euro.", "Das geht."]),
        ("zh", "今天下雨。明天晴天！", ["今天下雨。", "明天晴天！"]),
        ("ja", "雨が降る。傘を持つ。", ["雨が降る。", "傘を持つ。"]),
        ("hi", "बारिश हो रही है। छाता लो।", ["बारिश हो रही है।", "छाता लो।"]),
        ("en", "", []),
        ("en", " \n\t", []),
    ],
)
def test_sentences_by_hand(language: str, text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in sentences(text, language)] == expected


@pytest.mark.parametrize(("language", "sentence"), [("en", "It rained, e.g. in Rome. "), ("ja", "雨が降る。")])
def test_a_long_text_has_the_sentences_of_its_parts(language: str, sentence: str) -> None:
    found, size = sentences(sentence * 4_000, language), len(sentence)
    assert found == [(place * size, place * size + len(sentence.strip())) for place in range(4_000)]


def test_blanks_end_thai_clauses_that_are_long_enough() -> None:
    text = "วันนี้ฝนตกหนักมากในกรุงเทพมหานคร พรุ่งนี้อากาศจะแจ่มใสตลอดทั้งวัน ดี"
    found = [text[start:end] for start, end in sentences(text, "th")]
    assert len(found) == 2 and found[1].endswith(" ดี")


@given(words=st.lists(st.sampled_from(["a", "rain", "día", "비가"]), max_size=9))
def test_words_are_counted_by_blanks_where_a_script_has_them(words: list[str]) -> None:
    assert count_words("  ".join(words)) == len(words)


@given(st.text(), st.text())
def test_a_longer_text_has_no_fewer_words(one: str, other: str) -> None:
    assert count_words(f"{one} {other}") >= max(count_words(one), count_words(other))
