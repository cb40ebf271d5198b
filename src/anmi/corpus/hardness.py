"""The module estimates from its text alone how hard a query is: long, varied, punctuated, or mixed in language.

The heuristic of HANS: a weighted sum of four parts, each in [0, 1]. It lies in this room because training adapts to
it and evaluation reports by it.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from anmi.errors import installed

_LETTER, _DIGIT, _PUNCTUATION, _JOINER = 1, 2, 3, 4
# Apostrophes, and the two invisible characters that Indic and Arabic spelling puts inside words.
_JOINERS: Final = "'’\u200c\u200d"
# Chinese and Japanese write words without blanks; their three scripts are mixed within a word.
_UNSPACED: Final = ("CJK", "HIRAGANA", "KATAKANA")


def split_words(text: str) -> list[tuple[str, str]]:
    """Return the words, runs of letters and digits of one script and single ideographs, each with its script.

    An apostrophe stays inside its word. Thai and other scripts that write without blanks, ideographs aside, give one
    word for each run. Scripts are called as in Unicode (``LATIN``), that of a number is empty.

    Examples
    --------
    >>> split_words("don't stop 中文 42")
    [("don't", 'LATIN'), ('stop', 'LATIN'), ('中', 'CJK'), ('文', 'CJK'), ('42', '')]
    """
    known = [_character(character) for character in text]
    starts, ends, scripts = list[int](), list[int](), list[str]()
    before: tuple[int, str, bool] | None = None
    for place, here in enumerate(known):
        kind, script, ideograph = here
        if kind == _JOINER:
            beside = [found[0] for found in known[max(place - 1, 0) : place + 2 : 2]]
            kind = _LETTER if beside == [_LETTER, _LETTER] else _JOINER
        if kind not in (_LETTER, _DIGIT):
            before = None
            continue
        if before is None or ideograph or before[2] or (script and before[1] and script != before[1]):
            starts.append(place)
            ends.append(place)
            scripts.append("")
        ends[-1], scripts[-1] = place + 1, max(scripts[-1], script)
        before = here
    return [(text[start:end], script) for start, end, script in zip(starts, ends, scripts, strict=True)]


@lru_cache(maxsize=65536)
def _character(character: str) -> tuple[int, str, bool]:
    """Return kind, script and whether it is an ideograph."""
    if character in _JOINERS:
        return _JOINER, "", False
    kinds = {"L": _LETTER, "M": _LETTER, "N": _DIGIT, "P": _PUNCTUATION, "S": _PUNCTUATION}
    kind = kinds.get(unicodedata.category(character)[0], 0)
    if kind != _LETTER:
        return kind, "", False
    # The standard library knows no scripts, but the name of a letter starts with its own.
    script = unicodedata.name(character, "").split(" ")[0].split("-")[0]
    # Accents that combine with letters of any script, full-width forms of Latin ones.
    if script in ("COMBINING", "MODIFIER", ""):
        return kind, "", False
    if script in ("FULLWIDTH", "HALFWIDTH"):
        return kind, "LATIN" if script == "FULLWIDTH" else "CJK", False
    return kind, "CJK" if script in _UNSPACED else script, script == "CJK"


# Languages that are told apart, by the scripts that several share. Any other script says by itself which one it is.
LANGUAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "LATIN": ("de", "en", "es", "fr", "id", "it", "nl", "pl", "pt", "sv", "tr"),
    "CYRILLIC": ("bg", "ru", "uk"),
    "ARABIC": ("ar", "fa", "ur"),
}
# A word must be this much likelier (powers of ten) in another language; many words and most names are of several.
_SWITCH: Final = 1.3
_UNLISTED: Final = 1e-7


# The report's: of the words, the entropy of characters, the punctuation and the mixing of languages; and what counts in
# full, in words, in bits and as a share.
_WEIGHTS: Final = (0.35, 0.25, 0.20, 0.20)
_MOST_TOKENS, _MOST_ENTROPY, _MOST_PUNCTUATION = 24.0, 4.0, 0.25


class HardnessParams(BaseModel):
    """What makes a query hard."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code_mix: Literal["language", "script"] = "script"

    def check_installed(self) -> None:
        """Raise an AnmiError if languages are to be told apart and the extra ``code-mix`` is not installed."""
        if self.code_mix == "language":
            _wordfreq()


@dataclass(frozen=True)
class Hardness:
    """Hardness of Q queries and its parts, float64 [Q] each.

    Attributes
    ----------
    value
        In [0, 1], larger is harder.
    tokens
        Number of words; each Chinese character is one.
    entropy
        Of the characters of a query, in bits.
    punctuation
        Share of punctuation and symbols among the characters.
    code_mix
        See :func:`mixed_share`.
    """

    value: NDArray[np.float64]
    tokens: NDArray[np.float64]
    entropy: NDArray[np.float64]
    punctuation: NDArray[np.float64]
    code_mix: NDArray[np.float64]


def hardness(texts: Sequence[str], code_mix: Literal["language", "script"] = "language") -> Hardness:
    """Return the hardness of queries.

    0.35·min(tokens/24, 1) + 0.25·min(entropy/4 bits, 1) + 0.20·min(punctuation share/0.25, 1) + 0.20·code-mix share.
    It depends on each text alone, not on those given with it.

    Parameters
    ----------
    texts
        Q queries; an empty one has a hardness of 0.
    code_mix
        What must differ for a word to be mixed in, see :func:`mixed_share`.

    Raises
    ------
    AnmiError
        Languages are to be told apart and the extra ``code-mix`` is not installed.

    Examples
    --------
    >>> found = hardness(["aab?"], "script")
    >>> found.tokens.item(), found.entropy.item(), found.punctuation.item(), round(found.value.item(), 4)
    (1.0, 1.5, 0.25, 0.3083)
    """
    words = [split_words(text) for text in texts]
    tokens = np.array([*map(len, words)], np.float64)
    punctuation = np.array([_share(_character(each)[0] == _PUNCTUATION for each in text) for text in texts], float)
    entropy = np.array([_entropy(text) for text in texts], float)
    mixed = np.array([mixed_share(found, by=code_mix) for found in words], float)
    parts = (tokens / _MOST_TOKENS, entropy / _MOST_ENTROPY, punctuation / _MOST_PUNCTUATION, mixed)
    value = sum(weight * np.minimum(part, 1.0) for weight, part in zip(_WEIGHTS, parts, strict=True))
    return Hardness(np.minimum(value, 1.0), tokens, entropy, punctuation, mixed)


def _share(found: Iterable[bool]) -> float:
    every = list(found)
    return sum(every) / max(len(every), 1)


def _entropy(text: str) -> float:
    """Return the Shannon entropy of the distribution of characters, in bits."""
    shares = (count / len(text) for _, count in sorted(Counter(text).items()))
    # The sum may be -0.0 or a rounding below it.
    return max(sum(-share * math.log2(share) for share in shares), 0.0)


def mixed_share(words: Sequence[tuple[str, str]], by: Literal["language", "script"] = "language") -> float:
    """Return the share of words whose script or language is not the main one.

    The main script is that of most words, the main language the one that makes the words of that script likeliest. A
    word of it is mixed in if another language has it twenty times as often. Numbers are no words here.

    Parameters
    ----------
    words
        Of a text, see :func:`split_words`.
    by
        ``language`` looks at both, by lists of word frequencies; ``script`` at scripts only.

    Raises
    ------
    AnmiError
        ``by`` is ``language`` and the extra ``code-mix`` is not installed.

    Examples
    --------
    >>> mixed_share(split_words("what is कल का मौसम"), by="script")
    0.4
    """
    of_script = {
        script: [word.lower() for word, _ in found]
        for script, found in groupby(sorted(words, key=lambda word: word[1]), key=lambda word: word[1]) if script
    }  # fmt: skip
    if not of_script:
        return 0.0
    count, main = sum(map(len, of_script.values())), max(of_script, key=lambda script: len(of_script[script]))
    mixed = count - len(of_script[main])
    if by == "language" and main in LANGUAGES:
        mixed += _in_another_language(of_script[main], LANGUAGES[main])
    return mixed / count


def _in_another_language(words: Sequence[str], languages: tuple[str, ...]) -> int:
    """Return how many words of a text are likelier in another language than its main one."""
    likelihood = np.log10([_frequencies(word[:100], languages) for word in words])
    home = likelihood.sum(axis=0).argmax()
    return int((likelihood.max(axis=1) - likelihood[:, home] > _SWITCH).sum())


@lru_cache(maxsize=65536)
def _frequencies(word: str, languages: tuple[str, ...]) -> list[float]:
    return [_wordfreq().word_frequency(word, language, minimum=_UNLISTED) for language in languages]


def _wordfreq() -> Any:
    what = "telling the languages of words apart"
    return installed("wordfreq", what, "code-mix", "set evaluation.hardness.code_mix to script")
