"""Texts are cut into tokens for lexical retrieval, as their language needs.

Splitting at white-space is enough for few languages: stems and stop words where Snowball has them,
morphemes for Korean, words for Chinese, and runs of four characters where nothing better is known,
which needs neither blanks nor a dictionary. Texts are taken in NFC, so that it does not matter how
an accent is written.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex
from numpy.typing import NDArray

from anmi.errors import AnmiError, installed, nearest

# Characters of words as Unicode has them (UTS #18): in many scripts vowels are marks, which \w of
# `re` leaves out. It has ² and ½, which stay; what joins characters counts where it does more than
# shape them (see _SHAPING).
_CHARACTERS: Final = r"[\w\p{No}]--\p{Cf}"
# A single character is a word, too, except where an apostrophe leaves it over ("don't", "l'eau") or
# it is a part of a number.
_BEFORE_SINGLE: Final = r"(?<!\w['’])(?<!\d[.,])"
_AFTER_SINGLE: Final = r"(?!['’]\w\w)(?![.,]\d)"
_WORD: Final = regex.compile(
    rf"(?V1)[{_CHARACTERS}--\p{{M}}][{_CHARACTERS}]+"
    rf"|{_BEFORE_SINGLE}[{_CHARACTERS}--\p{{M}}]{_AFTER_SINGLE}"
)
# The same for texts in ASCII, in two thirds of the time.
_ASCII_WORD: Final = re.compile(rf"\w\w+|{_BEFORE_SINGLE}\w{_AFTER_SINGLE}", re.ASCII)
# Written by syllables or words, so that two characters say what four letters do.
_DENSE: Final = r"[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Hang}]"
_RUN: Final = regex.compile(
    rf"(?V1)(?P<dense>[{_CHARACTERS}--\p{{M}}&&{_DENSE}][{_CHARACTERS}&&[{_DENSE}\p{{M}}]]*)"
    rf"|[{_CHARACTERS}--\p{{M}}--{_DENSE}][{_CHARACTERS}--{_DENSE}]*"
)
# Terms beside the words: what a decimal point or a comma between digits holds together, and words
# with a sign before them (.NET, -5, --help) or after them (C#, C++, 50%).
_LETTER: Final = rf"[\w--{_DENSE}--[\p{{Thai}}\p{{Laoo}}\p{{Khmr}}\p{{Mymr}}]]"
_FRACTION: Final = rf"(?<=\d)[.,](?=\d){_LETTER}++"
_DECIMAL: Final = regex.compile(rf"(?V1)(?<![{_LETTER}.,]){_LETTER}++(?:{_FRACTION})++")
_PLAIN: Final = rf"{_LETTER}++(?:{_FRACTION})*+"
_PREFIX: Final = rf"(?<![{_LETTER}[[!-~]--[(\[{{\"'`,:=]]])(?:[.#@$€£¥~±+−–]|--?)"
_SUFFIX: Final = rf"(?:[#%‰°]|\++)(?!{_LETTER})"
_SIGNED: Final = regex.compile(
    rf"(?V1){_PREFIX}{_PLAIN}(?:{_SUFFIX})?|(?<!{_LETTER}|\d[.,]){_PLAIN}{_SUFFIX}"
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
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "eu": "basque", "fi": "finnish", "fr": "french", "hi": "hindi", "hu": "hungarian", "id": "indonesian",
    "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "pt": "portuguese",
    "ro": "romanian", "ru": "russian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
# Languages for which bm25s carries a stop-word list as well.
_STOPWORDS: Final = {"en", "de", "nl", "fr", "es", "pt", "it", "ru", "sv", "no", "tr", "da"}
# Which the English one lacks.
_MORE_STOPWORDS: Final = {"en": {"i"}}

# Those that look at more than what stands between two blanks, and whose tokens are words as they
# are written.
DICTIONARIES: Final = ("kiwi", "jieba")

Tokenize = Callable[[Sequence[str]], list[list[str]]]

# Raised whenever texts are cut into other terms, so that saved ones are not mixed with them.
RULES: Final = 2


def runs_of(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int32], NDArray[np.int64]]:
    """Return the different runs between blanks, which of them the texts hold in a row, and where each text begins.

    Examples
    --------
    >>> runs, held, starts = runs_of(["a b a", "b"])
    >>> runs, held.tolist(), starts.tolist()
    (['a', 'b'], [0, 1, 0, 1], [0, 3, 4])
    """
    rows = pc.split_pattern(
        pc.replace_substring(pa.array(texts, pa.large_string()), "\n", " "), " "
    )
    # Only different runs become strings of Python.
    found = rows.flatten().dictionary_encode()
    starts = np.concatenate([[0], np.cumsum(pc.list_value_length(rows).to_numpy())])
    return found.dictionary.to_pylist(), found.indices.to_numpy(), starts


def _composed(text: str) -> str:
    """Return a text in NFC, without the characters that only choose a shape."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    joined = "\u200c" in text or "\u200d" in text
    return unicodedata.normalize("NFC", _SHAPING.sub("", text)) if joined else text


def _lower(text: str, language: str) -> str:
    """Return a text in lower case, in which a dotted I is an i, and in Turkish and Azerbaijani a dotless one is none.

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


def _stem(language: str) -> Callable[[str], str | None]:
    """Return a function from a word to its stem, None of a stop word."""
    if language not in SNOWBALL:
        raise AnmiError(
            f'no Snowball stemmer for language "{language}"; use tokenizer "ngram" or "whitespace"'
        )
    import Stemmer
    from bm25s.tokenization import _infer_stopwords

    # A cache of its own would only be a second one.
    stemmer = Stemmer.Stemmer(SNOWBALL[language], 0)
    stop = set(_infer_stopwords(language)) if language in _STOPWORDS else set()
    stop |= _MORE_STOPWORDS.get(language, set())

    @lru_cache(_MOST_WORDS)
    def stem(word: str) -> str | None:
        return None if word in stop else str(stemmer.stemWord(word))

    return stem


def _snowball(language: str) -> Tokenize:
    stem = _stem(language)

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
    kept = ("N", "V", "M", "X", "SL", "SN", "SH")

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        return [
            [t.form.lower() for t in row if t.tag.startswith(kept)]
            for row in kiwi.tokenize([UNBROKEN.sub(r"\g<0> ", text) for text in texts])
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
    @lru_cache(_MOST_WORDS)
    def known(word: str) -> list[str]:
        return _pieces(word, _PIECE)

    def of_run(found: regex.Match[str]) -> list[str]:
        run = found[0]
        if found["dense"]:
            return _pieces(run, _DENSE_PIECE)
        return known(run) if len(run) <= _LONGEST_WORD else _pieces(run, _PIECE)

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        lowered = (_lower(text, language) for text in texts)
        return [
            [piece for found in _RUN.finditer(text) for piece in of_run(found)] for text in lowered
        ]

    return tokenize


def _pieces(run: str, length: int) -> list[str]:
    """Return the pieces of a run that begin at each of its characters and have at least so many code points.

    A character is a letter with its marks, so that none of these is parted from what it belongs to.
    A rest that no piece holds is a shorter one, as is a run that is shorter itself. Four letters
    are the best length in most languages [1]_.

    References
    ----------
    .. [1] McNamee and Mayfield, "Character N-Gram Tokenization for European Language Text Retrieval", Information
       Retrieval 7, 2004.

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
    """Return the tokeniser that the saved terms in a folder were cut by; refuse those of other rules."""
    if settings.get("rules") != RULES:
        raise AnmiError(
            f"{path}: another version of ANMI cut these texts into terms, which would not match"
            " the terms of queries; run the pipeline bm25 again"
        )
    return tokenizer(settings["tokenizer"], settings["language"])


def _whitespace(language: str) -> Tokenize:
    return lambda texts: [_NON_SPACE.findall(text.lower()) for text in texts]


TokenizerName = Literal["auto", "snowball", "kiwi", "jieba", "ngram", "whitespace"]
TOKENIZERS: Final[dict[str, Callable[[str], Tokenize]]] = {
    "snowball": _snowball,
    "kiwi": _kiwi,
    "jieba": _jieba,
    "ngram": _ngram,
    "whitespace": _whitespace,
}


def resolve(kind: str, language: str) -> str:
    """Return the name of the tokeniser for ``kind`` (``auto`` chooses by language).

    Examples
    --------
    >>> resolve("auto", "en"), resolve("auto", "ko"), resolve("auto", "ja")
    ('snowball', 'kiwi', 'ngram')
    """
    if kind != "auto":
        if kind not in TOKENIZERS:
            raise AnmiError(f'unknown tokenizer "{kind}"; {nearest(kind, ["auto", *TOKENIZERS])}')
        return kind
    return {"ko": "kiwi", "zh": "jieba"}.get(
        language, "snowball" if language in SNOWBALL else "ngram"
    )


@cache
def _made(kind: str, language: str) -> Tokenize:
    cut = TOKENIZERS[kind](language)

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        texts = [_composed(text) for text in texts]
        rows = cut(texts)
        if kind != "whitespace":
            for terms, text in zip(rows, texts, strict=True):
                _add_signed(terms, text, language)
        return rows

    return tokenize


def _add_signed(terms: list[str], text: str, language: str) -> None:
    """Add to the terms of a text those that signs are parts of, unless a dictionary knows them."""
    if text.isalnum():
        return
    signed = [*_DECIMAL.findall(text), *_SIGNED.findall(text)]
    if signed:
        words = set(terms)
        lowered = (_lower(term, language).translate(_MINUS) for term in signed)
        terms += [term for term in lowered if term not in words]


def _tokens(kind: str, language: str, texts: Sequence[str]) -> list[list[str]]:
    return _made(kind, language)(texts)


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
    _made(kind, language)
    # Which other processes can be sent.
    return partial(_tokens, kind, language)
