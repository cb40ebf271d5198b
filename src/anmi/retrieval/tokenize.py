"""Texts are cut into tokens for lexical retrieval, as their language needs.

Splitting at white-space is enough for few languages: stems and stop words where Snowball has them,
morphemes for Korean, words for Chinese, and runs of four characters where nothing better is known,
which needs neither blanks nor a dictionary. Letters are taken in one form, so that it does not
matter how wide they are or how an accent is written. Beside its words a text has the terms that
signs are parts of, the parts of identifiers and, in documents, accented words without accents.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final, Literal

import regex

from anmi.corpus.sentences import stop_words
from anmi.corpus.texts import one_form
from anmi.errors import AnmiError, installed, nearest

# Characters of words as Unicode has them (UTS #18): in many scripts vowels are marks, which \w of
# `re` leaves out. It has ² and ½, which stay; what joins characters counts where it does more than
# shape them (see _SHAPING).
_CHARACTERS: Final = r"[\w\p{No}]--\p{Cf}"
# A single character is a word, too, except where an apostrophe leaves it over ("don't", "l'eau") or
# it is a part of a number.
_SINGLE: Final = r"(?<!\w['’].)(?<!\d[.,].)(?!(?<=[^\W\d])['’](?:\w\w|[aeiouyàâéèê])|[.,]\d)"
_WORD: Final = regex.compile(
    rf"(?V1)[{_CHARACTERS}--\p{{M}}][{_CHARACTERS}]+"
    rf"|[{_CHARACTERS}--[\p{{M}}_]]{_SINGLE}"
)
# The same for texts in ASCII, in two thirds of the time.
_ASCII_WORD: Final = re.compile(rf"\w\w+|[^\W_]{_SINGLE}", re.ASCII)
# Written by syllables or words, so that two characters say what four letters do.
_DENSE: Final = r"[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Hang}]"
_RUN: Final = regex.compile(
    rf"(?V1)(?P<dense>[{_CHARACTERS}--\p{{M}}&&{_DENSE}][{_CHARACTERS}&&[{_DENSE}\p{{M}}]]*)"
    rf"|[{_CHARACTERS}--\p{{M}}--{_DENSE}][{_CHARACTERS}--{_DENSE}]*"
)


def _signs(letter: str) -> list[str]:
    """Return patterns of numbers such as 1.5 and of words with a sign, such as .NET or C#."""
    fraction = rf"(?<=\d)[.,](?=\d){letter}++"
    word = rf"{letter}++(?:{fraction})*+"
    prefix = rf"(?<![{letter}!#$%&)*+.\-/;<>?@\\\]^|}}~])(?:[.#@$€£¥~±+−–]|--?)"
    suffix = rf"(?:[#%‰°]|\++)(?!{letter})"
    signed = rf"{prefix}{word}(?:{suffix})?|(?<!{letter})(?<!\d[.,]){word}{suffix}"
    return [rf"(?<![{letter}.,]){letter}++(?:{fraction})++", signed]


_UNSPACED: Final = r"[\p{Thai}\p{Laoo}\p{Khmr}\p{Mymr}]"
_SIGNED: Final = [
    regex.compile(f"(?V1){pattern}") for pattern in _signs(rf"[\w--{_DENSE}--{_UNSPACED}]")
]
_ASCII_SIGNED: Final = [re.compile(pattern, re.ASCII) for pattern in _signs(r"\w")]
# Words of alphabets, and where the words of an identifier meet.
_ALPHABETS: Final = r"[\p{Latin}\p{Greek}\p{Cyrillic}]"
_ALPHABETIC: Final = regex.compile(rf"(?V1)(?<!_)_*+{_ALPHABETS}[{_ALPHABETS}\p{{M}}\d_]*+")
_ASCII_ALPHABETIC: Final = re.compile(r"(?<!_)_*+[A-Za-z]\w*+", re.ASCII)
_PARTS: Final = regex.compile(r"(?V1)_+|(?<=[\p{Ll}\d])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})")
_ACCENTS: Final = regex.compile(
    r"(?<=[\p{Latin}\p{Greek}])\p{Mn}+|(?<=\p{Cyrillic})[\u0300\u0301]|(?<=[еЕ])\u0308"
)
_LIGATURES: Final = str.maketrans({"œ": "oe", "Œ": "Oe", "æ": "ae", "Æ": "Ae", "ø": "o", "ł": "l"})
# Without one of these, a text in ASCII has no terms beside its words.
_ASCII_MORE: Final = re.compile(
    r"_|[A-Z](?:(?<=[a-z0-9].)|(?=[A-Z][a-z]))|[.,](?<=\d.)\d|[#%+](?<=\w.)"
    r"|[.#@$~+-](?<![^\s(\[{\"'`,:=].)-?\w"
)
_MINUS: Final = str.maketrans("−–", "--")
_CLUSTERS: Final = regex.compile(r"\X")
_PIECE: Final = 4
_DENSE_PIECE: Final = 2
# Longer runs are no words, and seldom met again.
_LONGEST_WORD: Final = 32
# Beside a sign of an Indic script, joiners choose a shape; elsewhere, as in Persian, they part
# words.
_SHAPING: Final = regex.compile(r"(?<=\p{M})[\u200c\u200d]+|[\u200c\u200d]+(?=\p{M})")
# Of which the stem is remembered: more than most collections have.
_MOST_WORDS: Final = 1 << 20
_NON_SPACE: Final = re.compile(r"\S+")
# Snowball's names of the languages for which there is a stemmer.
SNOWBALL: Final = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "es": "spanish", "eu": "basque", "fi": "finnish", "fr": "french",
    "hi": "hindi", "hu": "hungarian", "id": "indonesian", "it": "italian", "lt": "lithuanian",
    "ne": "nepali", "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian",
    "ru": "russian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip

# Those that look at more than what stands between two blanks, and whose tokens are words as they
# are written.
DICTIONARIES: Final = ("kiwi", "jieba", "nltk")

Tokenize = Callable[[Sequence[str]], list[list[str]]]

# Raised whenever texts are cut into other terms, so that saved ones are not mixed with them.
RULES: Final = 2


def _composed(text: str) -> str:
    """Return a text in one form of each letter, without the characters that only choose a shape."""
    if text.isascii():
        return text
    text = one_form(text)
    joined = "\u200c" in text or "\u200d" in text
    return unicodedata.normalize("NFC", _SHAPING.sub("", text)) if joined else text


def _lower(text: str, language: str) -> str:
    """Return a text in lower case; a dotted I is an i, in Turkish and Azerbaijani a dotless is ı.

    Examples
    --------
    >>> _lower("İstanbul IŞIK", "tr"), _lower("İstanbul IN", "en")
    ('istanbul ışık', 'istanbul in')
    """
    if language in ("tr", "az"):
        text = text.replace("I", "ı")
    return text.lower() if text.isascii() else text.lower().replace("i\u0307", "i")


def _words(text: str) -> list[str]:
    """Return the words of a text, marks among them."""
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text)


def _snowball(language: str) -> Tokenize:
    if language not in SNOWBALL:
        raise AnmiError(
            f'no Snowball stemmer for language "{language}"; use tokenizer "ngram" or "whitespace"'
        )
    import Stemmer

    # A cache of its own would only be a second one.
    stemmer = Stemmer.Stemmer(SNOWBALL[language], 0)
    stop = stop_words(language)

    @lru_cache(_MOST_WORDS)
    def stem(word: str) -> str | None:
        return None if word in stop else str(stemmer.stemWord(word))

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        words = (map(stem, _words(_lower(text, language))) for text in texts)
        return [[term for term in row if term is not None] for row in words]

    return tokenize


# Both take time by the square of what no blank interrupts; no word is that long.
UNBROKEN: Final = re.compile(r"\S{300}")


def _kiwi(language: str) -> Tokenize:
    # All cores; the order and the morphemes are the same with any number of them.
    kiwi = installed("kiwipiepy", "this collection", "korean").Kiwi(num_workers=-1)
    # Content morphemes: nouns, verbs, adjectives, adverbs, roots, foreign words, numbers.
    content_tags = ("N", "V", "M", "X", "SL", "SN", "SH")

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        morphemes = kiwi.tokenize([UNBROKEN.sub(r"\g<0> ", text) for text in texts])
        return [
            [morpheme.form.lower() for morpheme in row if morpheme.tag.startswith(content_tags)]
            for row in morphemes
        ]

    return tokenize


def _jieba(language: str) -> Tokenize:
    import logging

    jieba = installed("jieba", "this collection", "chinese")
    jieba.setLogLevel(logging.WARNING)

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        pieces = (jieba.cut(UNBROKEN.sub(r"\g<0> ", text.lower())) for text in texts)
        return [[word for piece in row for word in _words(piece)] for row in pieces]

    return tokenize


def _ngram(language: str) -> Tokenize:
    word_pieces = lru_cache(_MOST_WORDS)(_pieces)

    def pieces_of(match: regex.Match[str]) -> list[str]:
        length = _DENSE_PIECE if match["dense"] else _PIECE
        is_word = length == _PIECE and len(match[0]) <= _LONGEST_WORD
        return word_pieces(match[0], length) if is_word else _pieces(match[0], length)

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        matches = (_RUN.finditer(_lower(text, language)) for text in texts)
        return [[*chain.from_iterable(map(pieces_of, row))] for row in matches]

    return tokenize


def _pieces(run: str, length: int) -> list[str]:
    """Return the pieces of a run from each of its characters on, of ``length`` code points or more.

    A character is a letter with its marks, so that none of these is parted from what it belongs to.
    A rest that no piece holds is a shorter one, as is a run that is shorter itself. Four letters
    are the best length in most languages [1]_.

    References
    ----------
    .. [1] McNamee and Mayfield, "Character N-Gram Tokenization for European Language Text
       Retrieval", Information Retrieval 7, 2004.

    Examples
    --------
    >>> _pieces("house", 4), _pieces("at", 4), _pieces("हिन्दी", 4)
    (['hous', 'ouse'], ['at'], ['हिन्दी', 'न्दी'])
    """
    begins = [0, *accumulate(map(len, _CLUSTERS.findall(run)))]
    ends = (bisect_left(begins, begin + length) for begin in begins)
    spans = [
        (begin, begins[end]) for begin, end in zip(begins, ends, strict=True) if end < len(begins)
    ]
    # A long character reaches the length by itself, and what follows it may be too short to.
    if not spans or spans[-1][1] < len(run):
        spans.append((begins[len(spans)], len(run)))
    return [run[begin:end] for begin, end in spans]


def saved_tokenizer(settings: Mapping[str, Any], path: Path) -> Tokenize:
    """Return the tokeniser of the saved terms in a folder; refuse those of other rules."""
    if settings.get("rules") != RULES:
        raise AnmiError(
            f"{path}: another version of ANMI cut these texts into terms, which would not match"
            " the terms of queries; run the pipeline bm25 again"
        )
    return tokenizer(settings["tokenizer"], settings["language"])


def _whitespace(language: str) -> Tokenize:
    return lambda texts: [_NON_SPACE.findall(text.lower()) for text in texts]


def _nltk(language: str) -> Tokenize:
    nltk = installed("nltk", "this tokenizer", "nltk", "take bm25.tokenizer=whitespace")
    try:
        nltk.word_tokenize("A word.")
    except LookupError as error:
        raise AnmiError(
            'the tokenizer "nltk" parts sentences by the data punkt_tab, which no package brings:'
            " run `python -m nltk.downloader punkt_tab`, or take bm25.tokenizer=whitespace"
        ) from error
    return lambda texts: [nltk.word_tokenize(text.lower()) for text in texts]


TokenizerName = Literal["auto", "snowball", "kiwi", "jieba", "ngram", "whitespace", "nltk"]
TOKENIZERS: Final[dict[str, Callable[[str], Tokenize]]] = {
    "snowball": _snowball,
    "kiwi": _kiwi,
    "jieba": _jieba,
    "ngram": _ngram,
    "whitespace": _whitespace,
    "nltk": _nltk,
}


def resolve(kind: str, language: str) -> str:
    """Return the name of the tokeniser for ``kind`` (``auto`` chooses by language).

    Examples
    --------
    >>> resolve("auto", "en"), resolve("auto", "ko"), resolve("auto", "ja")
    ('snowball', 'kiwi', 'ngram')
    """
    if kind == "auto":
        default = "snowball" if language in SNOWBALL else "ngram"
        return {"ko": "kiwi", "zh": "jieba"}.get(language, default)
    if kind not in TOKENIZERS:
        raise AnmiError(f'unknown tokenizer "{kind}"; {nearest(kind, ["auto", *TOKENIZERS])}')
    return kind


@cache
def _cut(kind: str, language: str) -> Tokenize:
    return TOKENIZERS[kind](language)


@cache
def _made(kind: str, language: str, accents: bool) -> Tokenize:
    cut = _cut(kind, language)
    if kind in ("whitespace", "nltk"):
        return lambda texts: cut([unicodedata.normalize("NFC", text) for text in texts])

    @lru_cache(_MOST_WORDS)
    def second(word: str) -> list[str]:
        lowered = _lower(word, language)
        bare = unaccented(lowered) if accents else lowered
        forms = [*_parts(word), bare] if bare != lowered else _parts(word)
        if kind in DICTIONARIES or not forms:
            return [form.lower() for form in forms]
        terms, form_terms = cut([word, " ".join(forms)])
        word_terms = set(terms)
        # A stop word has no second form.
        return [term for term in form_terms if word_terms and term not in word_terms]

    def further_terms(text: str) -> list[str]:
        """Return the terms of a text beside its words."""
        is_ascii = text.isascii()
        patterns = _ASCII_SIGNED if is_ascii else _SIGNED
        signed = [term for pattern in patterns for term in pattern.findall(text)]
        terms = [_lower(term, language).translate(_MINUS) for term in signed]
        words = (_ASCII_ALPHABETIC if is_ascii else _ALPHABETIC).findall(text)
        return [*terms, *chain.from_iterable(map(second, words))]

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        texts = [_composed(text) for text in texts]
        rows = cut(texts)
        for terms, text in zip(rows, texts, strict=True):
            if _ASCII_MORE.search(text) or not text.isascii():
                # A dictionary may know some of them.
                words = set(terms) if kind in DICTIONARIES else ()
                terms += [term for term in further_terms(text) if term not in words]
        return rows

    return tokenize


def _parts(word: str) -> list[str]:
    """Return the words of two characters or more that an identifier is made of.

    Examples
    --------
    >>> [_parts(word) for word in ("getUserById", "__init__", "word")]
    [['get', 'User', 'By', 'Id'], ['init'], []]
    """
    return [part for part in _PARTS.split(word) if len(part) > 1 and part != word]


def unaccented(word: str) -> str:
    """Return a word of an alphabet without its accents.

    Umlauts are accents, too; Cyrillic й and ї are letters of their own.

    Examples
    --------
    >>> unaccented("hôpital"), unaccented("йогурт")
    ('hopital', 'йогурт')
    """
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFD", word).translate(_LIGATURES)
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))


def _tokens(
    kind: str,
    language: str,
    accents: bool,
    texts: Sequence[str],
) -> list[list[str]]:
    return _made(kind, language, accents)(texts)


def for_queries(tokenize: Tokenize) -> Tokenize:
    """Return how queries are cut where this cuts documents.

    Documents have each accented word without its accents as well. A query has one form, so that no
    word counts twice.
    """
    if not (isinstance(tokenize, partial) and tokenize.func is _tokens):
        return tokenize
    kind, language, _ = tokenize.args
    return partial(_tokens, kind, language, False)


def tokenizer(kind: str, language: str) -> Tokenize:
    """Return a function from texts to lists of tokens.

    Parameters
    ----------
    kind
        ``auto`` or a key of :data:`TOKENIZERS`.
    language
        ISO 639-1 code.

    Raises
    ------
    AnmiError
        There is no such tokeniser, it does not know the language, or its package is not installed.

    Examples
    --------
    >>> tokenizer("auto", "en")(["The running dogs"])
    [['run', 'dog']]
    """
    kind = resolve(kind, language)
    _cut(kind, language)
    # Which other processes can be sent.
    return partial(_tokens, kind, language, True)
