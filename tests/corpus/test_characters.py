from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.hardness import read_characters, split_words


def words_of(texts: list[str]) -> list[list[str]]:
    characters = read_characters(texts)
    words = split_words(characters)
    found: list[list[str]] = [[] for _ in texts]
    for text, start, end in zip(words.text, words.start, words.end, strict=True):
        found[text].append(characters.joined[start:end])
    return found


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
    assert words_of([text]) == [words]


def test_a_word_ends_where_its_text_ends() -> None:
    assert words_of(["ab", "cd", "", "e'", "'f"]) == [["ab"], ["cd"], [], ["e"], ["f"]]


def test_words_know_their_script_and_numbers_have_none() -> None:
    characters = read_characters(["12 Привет 9am 中 カナ ＡＢ"])
    script = [characters.scripts[s] if s >= 0 else "" for s in split_words(characters).script]
    assert script == ["", "CYRILLIC", "LATIN", "CJK", "CJK", "LATIN"]


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_text_gives_words_of_letters_and_digits_only(texts: list[str]) -> None:
    found = words_of(texts)
    alone = [words_of([text])[0] for text in texts]
    assert found == alone, "the words of a text depend on no other text"
    for text, words in zip(texts, found, strict=True):
        kept = [c for c in text if unicodedata.category(c)[0] in "LMN" and c not in "'’"]
        assert [c for word in words for c in word if unicodedata.category(c)[0] in "LMN" and c not in "'’"] == kept
