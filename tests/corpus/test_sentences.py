"""Sentences, words, languages and the hardness of queries."""

from __future__ import annotations

import math
import multiprocessing
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.adaptation.kinds import Document, Material, crop, keyphrase
from anmi.corpus.documents import of_html, of_markdown
from anmi.corpus.hardness import hardness, mixed_share, split_words
from anmi.corpus.related import near_duplicates
from anmi.corpus.sentences import count_words, detect_language, language_code, sentences
from anmi.corpus.texts import clean, normalised, normalised_forms, to_json
from anmi.errors import AnmiError
from anmi.pipelines.params import IngestionParams
from anmi.retrieval.tokenize import tokenizer

LANGUAGES = ["en", "de", "es", "ko", "zh", "ja", "th", "ar", "hi", "xx"]
# Texts with what ends sentences, lines and lists, which random characters seldom have.
_PIECES = "Dr. A|one|2.|!|?|\n|\n\n|- |: | |雨。|ฝน |\u3000"
PIECES = st.lists(st.sampled_from(_PIECES.split("|")))
TEXTS = st.one_of(st.text(), st.text(st.characters()), PIECES.map("".join), PIECES.map(" ".join))


@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
@example(text="\ud800 One. \ud83d Two. \U0001f600 Three.", language="en")
@example(text="\x1c.\x85 a", language="en")
def test_sentences_hold_all_of_the_text_but_the_white_space_between_them(
    text: str, language: str
) -> None:
    last, between = 0, ""
    for start, end in sentences(text, language):
        assert last <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        between, last = between + text[last:start], end
    assert not (between + text[last:]).strip()


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            "Dr. A saw it. It rained, e.g. in Rome.",
            ["Dr. A saw it.", "It rained, e.g. in Rome."],
        ),
        ("en", "So:\n1. Cut.\n2. Sew it\n   well.", ["So:", "1. Cut.", "2. Sew it\n   well."]),
        ("en", "A line that was\nwrapped goes on.", ["A line that was\nwrapped goes on."]),
        ("de", "Es kostet z. B. 3 Euro. Das geht.", ["Es kostet z. B. 3 Euro.", "Das geht."]),
        ("zh", "今天下雨。明天晴天！", ["今天下雨。", "明天晴天！"]),
        ("ja", "雨が降る。傘を持つ。", ["雨が降る。", "傘を持つ。"]),
        ("hi", "बारिश हो रही है। छाता लो।", ["बारिश हो रही है।", "छाता लो।"]),
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
        ("yahoo!कल ?! ", ["yahoo", "कल"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(st.text(max_size=24))
def test_any_text_gives_words_of_letters_and_digits_only(text: str) -> None:
    def kept(text: str) -> list[str]:
        return [c for c in text if unicodedata.category(c)[0] in "LMN" and c not in "'’"]

    assert [c for word in words_of(text) for c in kept(word)] == kept(text)


_CHARACTERS = (
    " ¦\n¦. ¦.¦\"¦'¦`¦“¦«¦「¦[¦(¦<a>¦*¦_¦-¦a¦1. ¦aB¦éA¦e\u0301¦\u0301¦漢¦가¦ก¦क्¦ﷺ¦😀¦👩\u200d"
)
CHARACTERS = [*_CHARACTERS.split("¦"), "\u200b", "\ufeff", "\\"]
# Each with the characters that it is given: where libraries need about a second for 100 kB of
# prose, fewer.
BOMBS: dict[str, tuple[int, Callable[[str], Any]]] = {
    "sentences": (1_000_000, lambda text: sentences(text, "en")),
    "clauses": (1_000_000, lambda text: sentences(text, "th")),
    "words": (1_000_000, count_words),
    "normalised": (1_000_000, normalised),
    "json": (1_000_000, lambda text: to_json({"text": clean(text)})),
    "language": (1_000_000, lambda text: detect_language([text])),
    "code mixing": (200_000, lambda text: hardness([text])),
    "duplicates": (1_000_000, lambda text: near_duplicates(normalised_forms([text, f"{text} x"]))),
    "markdown": (100_000, lambda text: of_markdown(text.encode())),
    "html": (1_000_000, lambda text: of_html(text.encode())),
    "keyphrase": (
        1_000_000,
        lambda text: keyphrase(Material([Document("d", "", text, "en")], "en")),
    ),
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


@pytest.mark.parametrize("characters", ["_", "éA"])
def test_what_no_blank_interrupts_is_cut_in_time(characters: str) -> None:
    start = time.perf_counter()
    tokenizer("ngram", "ja")([characters * 50_000])
    assert time.perf_counter() - start < 10


CODES = {
    "hi": "hi",
    "EN-us": "en",
    "pt_BR": "pt",
    "zh-Hant": "zh",
    " ta ": "ta",
    "nb": "no",
    "my": "my",
}


@pytest.mark.parametrize(("given", "code"), CODES.items())
def test_codes_with_region_and_in_capitals(given: str, code: str) -> None:
    assert language_code(given) == code
    assert IngestionParams(language=given).language == code


@pytest.mark.parametrize(("given", "hint"), [("hindi", '"hi"'), ("Thai", '"th"'), ("xylo", "ISO")])
def test_an_unknown_language_is_refused(given: str, hint: str) -> None:
    with pytest.raises(AnmiError, match=f'"{given}".*{hint}'):
        language_code(given)


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


def test_apostrophes_are_punctuation_and_part_no_word() -> None:
    assert words_of("don't rock 'n' l’eau") == ["don't", "rock", "n", "l’eau"]
    without, marked = hardness(["dont stop now", "don't stop now"], "script")
    entropy = 0.25 * (slow("don't stop now")[1] - slow("dont stop now")[1]) / 4
    assert marked - without == pytest.approx(entropy + 0.2 / 14 / 0.25)


def slow(text: str) -> tuple[float, float, float]:
    """Words, entropy and punctuation share, a character at a time (no ideographs, no apostrophes in words)."""
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
