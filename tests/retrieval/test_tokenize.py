"""Tokens per language."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.sentences import LANGUAGES
from anmi.retrieval.terms import Terms, counted_texts
from anmi.retrieval.tokenize import resolve, tokenizer

# Letters, marks and joiners of many scripts, so that marks stand in all places, as they do in damaged texts, too.
TEXTS = st.text(
    st.one_of(
        st.sampled_from("कीन्दிமழைกำลังរៀនéßİıñ한국東京タワー_ab 1२²½\u0301\u0308\u094d\u200c\u200d\u00ad-.'"),
        st.characters(categories=("L", "M", "N", "Zs", "Pc", "Po", "Cf")),
    ),
    max_size=30,
)


@given(
    st.lists(st.one_of(TEXTS, st.text(st.sampled_from("aAbIiñ_9 \n\t\x1f.'"), max_size=20)), min_size=1, max_size=6),
    st.sampled_from(["snowball en", "snowball tr", "snowball hi", "ngram th", "ngram ja", "whitespace en"]),
)
def test_many_texts_are_cut_as_each_is(texts: list[str], how: str) -> None:
    cut = tokenizer(*how.split())
    counts, vocabulary = counted_texts(texts, cut, alone=True)
    slow = Terms.build(texts, cut)
    assert list(vocabulary) == list(slow.vocabulary)
    assert counts.has_canonical_format and (counts != slow.counts).nnz == 0


def test_korean_particles_are_split_off() -> None:
    tokenize = tokenizer("auto", "ko")
    with_particle, alone = tokenize(["도서관에서 책을 읽었다", "도서관 책"])
    assert set(alone) <= set(with_particle)
    assert "에서" not in with_particle and "을" not in with_particle
    assert tokenize([]) == []


def test_chinese_is_segmented_into_words_without_punctuation() -> None:
    (words,) = tokenizer("auto", "zh")(["我来到北京清华大学。"])
    assert "北京" in words and "。" not in words and len(words) > 2


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("hi", "हिन्दी में लिखी किताबें", ["हिन्दी", "में"]),
        ("ta", "தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("ne", "नेपाली भाषा", ["नेपाली", "भाषा"]),
    ],
)
def test_words_keep_their_vowel_signs(language: str, text: str, words: list[str]) -> None:
    """A stem may end earlier; what stands before its end is all there."""
    assert resolve("auto", language) == "snowball"
    (terms,) = tokenizer("auto", language)([text])
    assert len(terms) == len(text.split())
    assert all(word.startswith(term) for term, word in zip(terms, text.split(), strict=True))
    (alone,) = tokenizer("auto", language)([" ".join(words)])
    assert set(alone) <= set(terms)


@pytest.mark.parametrize(
    ("language", "sentence", "word", "other"),
    [
        ("th", "ภาษาไทยเป็นภาษาที่มีเสียงวรรณยุกต์", "วรรณยุกต์", "ตัวอักษร"),
        ("km", "ខ្ញុំរៀនភាសាខ្មែរនៅសាលា", "ភាសាខ្មែរ", "ប្រទេសថៃ"),
        ("lo", "ຂ້ອຍຮຽນພາສາລາວຢູ່ໂຮງຮຽນ", "ພາສາລາວ", "ປະເທດໄທ"),
        ("my", "ကျွန်တော်မြန်မာစာသင်နေသည်", "မြန်မာစာ", "ထိုင်းနိုင်ငံ"),
        ("ja", "私は昨日東京タワーに登りました", "東京タワー", "大阪城"),
    ],
)
def test_a_word_is_found_in_a_sentence_without_blanks(language: str, sentence: str, word: str, other: str) -> None:
    assert resolve("auto", language) == "ngram"
    found, asked, foreign = tokenizer("auto", language)([sentence, word, other])
    # A letter that a long one leaves over at the end of a word belongs to the next piece of a sentence.
    assert set(asked) - set(found) <= {word[-1]}
    assert len(set(asked) & set(found)) > 1
    assert not set(foreign) & set(found)


@pytest.mark.parametrize("kind", ["snowball", "jieba", "ngram", "whitespace"])
@given(text=TEXTS)
def test_it_does_not_matter_how_an_accent_is_written(kind: str, text: str) -> None:
    together, apart = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    tokenize = tokenizer(kind, "es")
    assert tokenize([apart]) == tokenize([together])


@given(text=TEXTS)
def test_pieces_hold_every_letter_and_digit(text: str) -> None:
    (tokens,) = tokenizer("ngram", "xx")([text])
    letters = {letter for letter in unicodedata.normalize("NFC", text).lower() if letter.isalnum()}
    assert letters <= set("".join(tokens))


def test_joiners_choose_a_shape_in_indic_scripts_and_part_words_elsewhere() -> None:
    ((sinhala,), (plain,)) = tokenizer("ngram", "si")(["ශ්\u200dරී", "ශ්රී"])
    assert sinhala == plain
    with_joiner, with_blank = tokenizer("ngram", "fa")(["می\u200cخواهم", "می خواهم"])
    assert with_joiner == with_blank


def test_capitals_of_a_dotted_and_a_dotless_i() -> None:
    turkish = tokenizer("auto", "tr")
    assert turkish(["İSTANBUL IŞIK"]) == turkish(["istanbul ışık"])
    english = tokenizer("auto", "en")
    assert english(["İstanbul in FIJI"]) == english(["istanbul IN fiji"])


def test_english_identifiers_numbers_and_short_words_are_cut_as_ever() -> None:
    texts = ["call np.linspace(0, 1.5) don't read_csv e-mail x² Ångström naïve 10m² 1990s"]
    assert tokenizer("snowball", "en")(texts) == [
        ["call", "np", "linspac", "don", "read_csv", "mail", "x²", "ångström", "naïv", "10m²", "1990s"]
    ]


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - {"ko", "zh"}))
def test_every_language_has_a_tokeniser(language: str) -> None:
    assert tokenizer("auto", language)(["Reis 12345 日本 हिन्दी"])[0]
