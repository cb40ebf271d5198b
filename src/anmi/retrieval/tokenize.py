"""Tokens for lexical retrieval, per language.

Splitting at white-space is enough for few languages: stems and stop words where Snowball has them, morphemes for
Korean, words for Chinese, and sub-word pieces where nothing better is known.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, Literal

from anmi.errors import AnmiError, nearest

_WORD: Final = re.compile(r"(?u)\b\w\w+\b")
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

Tokenize = Callable[[Sequence[str]], list[list[str]]]


def _snowball(language: str) -> Tokenize:
    if language not in SNOWBALL:
        raise AnmiError(f'no Snowball stemmer for language "{language}"; use tokenizer "subword" or "whitespace"')
    import Stemmer
    from bm25s.tokenization import _infer_stopwords

    # A cache of its own would only be a second one.
    stemmer = Stemmer.Stemmer(SNOWBALL[language], 0)
    stop = frozenset(_infer_stopwords(language)) if language in _STOPWORDS else frozenset()

    @lru_cache(_MOST_WORDS)
    def stem(word: str) -> str | None:
        return None if word in stop else str(stemmer.stemWord(word))

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        words = (map(stem, _WORD.findall(text.lower())) for text in texts)
        return [[term for term in row if term is not None] for row in words]

    return tokenize


def _module(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AnmiError(f'this collection needs the package {name}: pip install "anmi[{extra}]"') from error


def _kiwi(language: str) -> Tokenize:
    # All cores; the order and the morphemes are the same with any number of them.
    kiwi = _module("kiwipiepy", "korean").Kiwi(num_workers=-1)
    # Content morphemes: nouns, verbs, adjectives, adverbs, roots, foreign words, numbers.
    kept = ("N", "V", "M", "X", "SL", "SN", "SH")

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        return [[t.form.lower() for t in row if t.tag.startswith(kept)] for row in kiwi.tokenize(list(texts))]

    return tokenize


def _jieba(language: str) -> Tokenize:
    import logging

    jieba = _module("jieba", "chinese")
    jieba.setLogLevel(logging.WARNING)

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        return [[word for word in jieba.cut(text.lower()) if _WORD.search(word) or word.isalnum()] for text in texts]

    return tokenize


def _subword(language: str) -> Tokenize:
    from tokenizers import Tokenizer

    from anmi.retrieval.encoders import minilm_folder

    pieces = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    pieces.no_truncation()
    pieces.no_padding()

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        return [row.tokens for row in pieces.encode_batch(list(texts), add_special_tokens=False)]

    return tokenize


def _whitespace(language: str) -> Tokenize:
    return lambda texts: [_NON_SPACE.findall(text.lower()) for text in texts]


TokenizerName = Literal["auto", "snowball", "kiwi", "jieba", "subword", "whitespace"]
TOKENIZERS: Final[dict[str, Callable[[str], Tokenize]]] = {
    "snowball": _snowball,
    "kiwi": _kiwi,
    "jieba": _jieba,
    "subword": _subword,
    "whitespace": _whitespace,
}


def resolve(kind: str, language: str) -> str:
    """Return the name of the tokeniser for ``kind`` (``auto`` chooses by language).

    Examples
    --------
    >>> resolve("auto", "en"), resolve("auto", "ko"), resolve("auto", "ja")
    ('snowball', 'kiwi', 'subword')
    """
    if kind != "auto":
        if kind not in TOKENIZERS:
            raise AnmiError(f'unknown tokenizer "{kind}"; {nearest(kind, ["auto", *TOKENIZERS])}')
        return kind
    return {"ko": "kiwi", "zh": "jieba"}.get(language, "snowball" if language in SNOWBALL else "subword")


@cache
def _made(kind: str, language: str) -> Tokenize:
    return TOKENIZERS[kind](language)


@dataclass(frozen=True)
class Tokenizer:
    """A tokeniser by name, which other processes can be sent.

    Attributes
    ----------
    kind
        A key of :data:`TOKENIZERS`.
    language
        ISO 639-1 code.
    """

    kind: str
    language: str

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the tokens of each text."""
        return _made(self.kind, self.language)(texts)


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
    return Tokenizer(kind, language)
