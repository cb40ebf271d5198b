"""Tokens per language."""

from __future__ import annotations

import pytest

from anmi.errors import AnmiError
from anmi.retrieval.tokenize import SNOWBALL, TOKENIZERS, resolve, tokenizer


def test_english_is_stemmed_and_without_stop_words() -> None:
    assert tokenizer("auto", "en")(["The dogs are running", "of the", ""]) == [["dog", "run"], [], []]


def test_german_is_stemmed_by_its_own_stemmer() -> None:
    (plural,), (singular,) = tokenizer("auto", "de")(["die Häuser", "das Haus"])
    assert plural == singular == "haus"


def test_korean_particles_are_split_off() -> None:
    tokenize = tokenizer("auto", "ko")
    with_particle, alone = tokenize(["도서관에서 책을 읽었다", "도서관 책"])
    assert set(alone) <= set(with_particle)
    assert "에서" not in with_particle and "을" not in with_particle
    assert tokenize([]) == []


def test_chinese_is_segmented_into_words_without_punctuation() -> None:
    (words,) = tokenizer("auto", "zh")(["我来到北京清华大学。"])
    assert "北京" in words and "。" not in words and len(words) > 2


def test_other_languages_fall_back_to_sub_words_that_find_parts_of_words() -> None:
    assert resolve("auto", "ja") == resolve("auto", "xx") == "subword"
    short, long = tokenizer("subword", "ja")(["retrieval", "retrievals " * 600])
    assert set(short) & set(long)
    assert len(long) >= 600, "long texts must not be truncated"
    assert "[CLS]" not in short and "[PAD]" not in short


def test_white_space_keeps_everything_between_spaces() -> None:
    assert tokenizer("whitespace", "en")(["The C++  api\n"]) == [["the", "c++", "api"]]


@pytest.mark.parametrize("language", sorted(SNOWBALL))
def test_every_snowball_language_works(language: str) -> None:
    assert resolve("auto", language) == "snowball"
    assert tokenizer("auto", language)(["reisen Отель ξενοδοχείο 12345"])[0]


@pytest.mark.parametrize("kind", sorted(set(TOKENIZERS) - {"kiwi"}))
def test_no_texts_give_no_rows(kind: str) -> None:
    assert tokenizer(kind, "en")([]) == []


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(AnmiError, match='unknown tokenizer "snowbal"; did you mean "snowball"'):
        tokenizer("snowbal", "en")


def test_a_language_without_a_stemmer_says_what_to_use() -> None:
    with pytest.raises(AnmiError, match=r'"xx".*subword'):
        tokenizer("snowball", "xx")
