"""How likely a single word is in each language: frequency lists, with a model of letters for what no list holds.

Recognisers of whole texts are no use for single words: on ``ke``, ``liye`` and ``karo`` (romanised Hindi) py3langid and
its like name a different language each. A list of frequencies knows common words, which are most words; and a
language written in another script than its own is reached by romanising its list.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError, nearest

# Scripts that several languages share. A script that is not here says by itself which language a word is of.
LANGUAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "LATIN": ("de", "en", "es", "fr", "hi-Latn", "id", "it", "nl", "pl", "pt", "sv", "tr"),
    "CYRILLIC": ("bg", "ru", "uk"),
    "ARABIC": ("ar", "fa", "ur"),
}
# Most frequent words of a language that are kept: beyond them its model of letters says as much.
_WORDS: Final = 100_000
_WORDS_ROMANISED: Final = 25_000
# The share of running words that no list holds, and how many spellings a romanised word has (chosen on train splits,
# as the two numbers of code_mix.py: it is loan words, listed in both languages, that it decides).
_UNLISTED: Final = 0.005
_SPELLINGS: Final = 10.0
_LETTERS: Final = 32
_SMOOTHING: Final = 20.0
# Names of letters that are not what is written for them.
_INDIC: Final = {"ssa": "sha", "r": "ri", "ca": "cha"}
# Romanised spellings of one sound, so that "hafte" and "haphte", "dikhao" and "dikhaao" meet.
_SOUNDS: Final = (("ee", "i"), ("oo", "u"), ("w", "v"), ("ph", "f"), ("q", "k"), ("z", "j"), ("x", "ks"))
_DOUBLED: Final = re.compile(r"(.)\1+")
_CH: Final = re.compile(r"ch+|c")
_NASAL: Final = re.compile(r"m(?=[^aeiouyrlm]|$)")
_GLIDE: Final = re.compile(r"y(?=[ei])")
# The vowel that is written in Devanagari but not spoken: karanaa is karna.
_SILENT: Final = re.compile(r"(?<=[aeiou])([^aeiou]h?)a(?=[^aeiou]h?[aeiou])")
_LAST: Final = re.compile(r"(?<=[aeiou])[nh]$")


def log_likelihoods(words: Sequence[str], languages: Sequence[str]) -> NDArray[np.float32]:
    """Return the decimal logarithm of the frequency of every word in every language.

    Parameters
    ----------
    words
        W lower-case words of one script.
    languages
        L languages of that script: ISO 639-1 codes, or ``hi-Latn`` for one that is romanised.

    Returns
    -------
    numpy.ndarray
        float32 [W, L]. A word of less than two letters says nothing: its row is 0.

    Raises
    ------
    AnmiError
        The extra ``code-mix`` is not installed, or it has no list for a language.
    """
    tables = [_language(name) for name in languages]
    keys = {False: [fold(word) for word in words], True: []}
    if any(table.romanised for table in tables):
        keys[True] = [sound(word) for word in words]
    columns = [table.log_likelihood(keys[table.romanised]) for table in tables]
    result = np.stack(columns, axis=1).astype(np.float32)
    result[[len(key) < 2 for key in keys[False]]] = 0.0
    return result


def fold(word: str) -> str:
    """Return the letters of a word without case, accents and anything else.

    Examples
    --------
    >>> fold("Été"), fold("don't"), fold("Straße")
    ('ete', 'dont', 'strasse')
    """
    if word.isascii() and word.isalpha():
        return word.lower()
    parts = unicodedata.normalize("NFKD", word.casefold())
    return "".join(character for character in parts if character.isalpha())


def sound(word: str) -> str:
    """Return a key that romanised spellings of one word mostly share.

    Examples
    --------
    >>> [sound(word) for word in ("karanaa", "karna", "haphte", "hafte", "nahiim", "nahin", "nahi")]
    ['karna', 'karna', 'hafte', 'hafte', 'nahi', 'nahi', 'nahi']
    """
    key = fold(word)
    for spelling, other in _SOUNDS:
        key = key.replace(spelling, other)
    key = _DOUBLED.sub(r"\1", key)
    key = _NASAL.sub("n", _CH.sub("ch", key))
    return _LAST.sub("", _SILENT.sub(r"\1", _GLIDE.sub("", key)))


class _Language:
    """The frequencies of one language and its model of letters."""

    def __init__(self, frequencies: dict[str, float], *, romanised: bool) -> None:
        self.romanised = romanised
        self._frequencies = frequencies
        self._letters = _letter_model(list(frequencies), np.array(list(frequencies.values())))
        self._spellings = _SPELLINGS if romanised else 1.0

    def log_likelihood(self, keys: list[str]) -> NDArray[np.float64]:
        grams, owner = _four_grams(keys)
        unlisted = np.bincount(owner, weights=self._letters[grams], minlength=len(keys))
        listed = np.array([self._frequencies.get(key, 0.0) for key in keys]) / self._spellings
        return np.log10(listed + _UNLISTED * 10.0**unlisted + 1e-14)


@lru_cache(maxsize=64)
def _language(name: str) -> _Language:
    plain = name.removesuffix("-Latn")
    romanised = plain != name
    frequencies: dict[str, float] = {}
    words = islice(_listed(plain), _WORDS_ROMANISED if romanised else _WORDS)
    for word, frequency in words:
        # A list of Hindi holds English words too, as they are written in English.
        if romanised and word.isascii():
            continue
        letters = sound(romanise(word)) if romanised else fold(word)
        if letters:
            frequencies[letters] = frequencies.get(letters, 0.0) + frequency
    return _Language(frequencies, romanised=romanised)


def _listed(language: str) -> Any:
    """Yield words and frequencies, most frequent first."""
    wordfreq = _module("wordfreq")
    known = wordfreq.available_languages("best")
    if language not in known:
        raise AnmiError(f'wordfreq has no list of words for the language "{language}"; {nearest(language, known)}')
    for centibels, words in enumerate(wordfreq.get_frequency_list(language, "best")):
        for word in words:
            yield word, 10.0 ** (-centibels / 100)
    # The library keeps what it has read; we keep what we need of it.
    wordfreq.get_frequency_list.cache_clear()


def romanise(word: str) -> str:
    """Return a word of an Indic script in Latin letters, as the Unicode names of its characters spell them.

    Examples
    --------
    >>> [romanise(word) for word in ("दिखाओ", "करना", "नहीं", "आज")]
    ['dikhaao', 'karanaa', 'nahiin', 'aaj']
    """
    spelled, kind = "", ""
    for character in word:
        kind, sound_of = _named(character)
        # A vowel sign or a virama takes the place of the vowel that goes with every consonant.
        if kind == "sign":
            spelled = spelled.removesuffix("a") + sound_of
        else:
            spelled += sound_of
    # The vowel of a last consonant is not spoken.
    return spelled.removesuffix("a") if kind == "letter" and len(word) > 1 else spelled


@lru_cache(maxsize=4096)
def _named(character: str) -> tuple[str, str]:
    """Return ``sign`` or another kind, and the letters of the last word of the character's name."""
    name = unicodedata.name(character, "")
    last = name.split(" ")[-1].lower()
    if "VOWEL SIGN" in name or "SIGN VIRAMA" in name:
        return "sign", "" if last == "virama" else _INDIC.get(last, last)
    if " SIGN " in name:
        return "mark", "n" if last in ("anusvara", "candrabindu") else ""
    return "letter", _INDIC.get(last, last) if " LETTER " in name else ""


def check_installed() -> None:
    """Raise an AnmiError unless the lists of words are installed."""
    _module("wordfreq")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AnmiError(
            f'recognising the language of single words needs the package {name}: pip install "anmi[code-mix]", or set '
            "code_mix to script"
        ) from error


def _four_grams(words: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of every run of four letters, with a blank before and after each word, and its word's number.

    A letter counts by its lower five bits, which tell the letters of one alphabet apart but for a pair or two.
    """
    lengths = np.array([len(word) + 2 for word in words], np.int64)
    codes = np.frombuffer("".join(f" {word} " for word in words).encode("utf-32-le"), dtype="<u4").astype(np.int64)
    owner = np.repeat(np.arange(len(words)), lengths)
    start = (np.cumsum(lengths) - lengths)[owner]
    letters = np.where(codes == ord(" "), 0, np.where(codes % _LETTERS == 0, _LETTERS - 1, codes % _LETTERS))
    at = np.arange(len(codes))
    number = letters.copy()
    for back in (1, 2, 3):
        number += np.where(at - back >= start, np.roll(letters, back), 0) * _LETTERS**back
    kept = at > start
    return number[kept], owner[kept]


def _letter_model(words: list[str], frequencies: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return log10 of the probability of a letter after three others, by the number of the four.

    Words count by the logarithm of their frequency: it is the rare ones whose like is met again. Each order is
    smoothed by the one below it (Dirichlet prior).
    """
    grams, owner = _four_grams(words)
    weights = np.log10(frequencies) + 10.0
    four = np.bincount(grams, weights=weights[owner], minlength=_LETTERS**4).reshape((_LETTERS,) * 4)
    three, two, one = four.sum(0), four.sum((0, 1)), four.sum((0, 1, 2))
    probability = (one + 1.0) / (one.sum() + _LETTERS)
    for counts in (two, three, four):
        probability = (counts + _SMOOTHING * probability) / (counts.sum(-1, keepdims=True) + _SMOOTHING)
    return np.log10(probability).astype(np.float32).ravel()
