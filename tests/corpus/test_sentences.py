"""Sentences and their characters."""

from __future__ import annotations

import multiprocessing
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.adaptation.kinds import Document, Material, crop, keyphrase
from anmi.corpus.documents import of_html, of_markdown
from anmi.corpus.hardness import hardness, split_words
from anmi.corpus.related import near_duplicates
from anmi.corpus.sentences import count_words, detect_language, sentences
from anmi.corpus.texts import clean, normalised, normalised_forms, to_json
from anmi.retrieval.tokenize import tokenizer

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


def test_blanks_end_thai_clauses_that_are_long_enough() -> None:
    text = "วันนี้ฝนตกหนักมากในกรุงเทพมหานคร พรุ่งนี้อากาศจะแจ่มใสตลอดทั้งวัน ดี"
    found = [text[start:end] for start, end in sentences(text, "th")]
    assert len(found) == 2 and found[1].endswith(" ดี")


def words_of(text: str) -> list[str]:
    return [word for word, _ in split_words(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What's new, in 2024?", ["What's", "new", "in", "2024"]),
        ("'quoted' l’eau rock'n", ["quoted", "l’eau", "rock'n"]),
        ("पैंथर्स डिफ़ेंस ने", ["पैंथर्स", "डिफ़ेंस", "ने"]),
        ("黑豹队NFL冠军", ["黑", "豹", "队", "NFL", "冠", "军"]),
        ("これは本", ["これは", "本"]),
        ("café cafe\u0301", ["café", "cafe\u0301"]),
        ("yahoo!कल", ["yahoo", "कल"]),
        ("", []),
        (" ?! ", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(st.text(max_size=24))
def test_any_text_gives_words_of_letters_and_digits_only(text: str) -> None:
    def kept(text: str) -> list[str]:
        return [c for c in text if unicodedata.category(c)[0] in "LMN" and c not in "'’"]

    assert [c for word in words_of(text) for c in kept(word)] == kept(text)


CHARACTERS = [
    *(" ", "\n", ". ", ".", '"', "'", "`", "“", "«", "「", "[", "(", "<a>", "*", "_", "-", "a", "1. "),
    *("e\u0301", "\u0301", "漢", "가", "ก", "क्", "ﷺ", "😀", "👩\u200d", "\u200b", "\ufeff", "\\"),
]
# Each with the characters that it is given: where libraries need about a second for 100 kB of prose, fewer.
BOMBS: dict[str, tuple[int, Callable[[str], Any]]] = {
    "sentences": (1_000_000, lambda text: sentences(text, "en")),
    "clauses": (1_000_000, lambda text: sentences(text, "th")),
    "words": (1_000_000, count_words),
    "normalised": (1_000_000, normalised),
    "json": (1_000_000, lambda text: to_json({"text": clean(text)})),
    "language": (1_000_000, lambda text: detect_language([text])),
    "code mixing": (200_000, lambda text: hardness([text])),
    "duplicates": (1_000_000, lambda text: near_duplicates(normalised_forms([text, f"{text} x"]), least_words=1)),
    "markdown": (100_000, lambda text: of_markdown(text.encode())),
    "html": (1_000_000, lambda text: of_html(text.encode())),
    "keyphrase": (1_000_000, lambda text: keyphrase(Material([Document("d", "", text, "en")], "en"))),
    "crop": (1_000_000, lambda text: crop(Document("d", "", text, "en"), 3, 1)),
    "snowball": (1_000_000, lambda text: tokenizer("snowball", "en")([text])),
    "ngram": (1_000_000, lambda text: tokenizer("ngram", "ja")([text])),
    "jieba": (300_000, lambda text: tokenizer("jieba", "zh")([text])),
    "kiwi": (100_000, lambda text: tokenizer("kiwi", "ko")([text])),
}


def take_all(name: str) -> None:
    size, function = BOMBS[name]
    for character in CHARACTERS:
        function(character * (size // len(character)))


@pytest.mark.rare
@pytest.mark.parametrize("name", BOMBS)
def test_no_character_is_a_time_bomb(name: str) -> None:
    # What takes time by the square of its input needs many minutes for one of them.
    process = multiprocessing.get_context("spawn").Process(target=take_all, args=(name,))
    process.start()
    process.join(240)
    alive = process.is_alive()
    process.kill()
    process.join()
    assert not alive and process.exitcode == 0
