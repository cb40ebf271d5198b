"""The module estimates how hard a query is: long, varied, punctuated, or mixed in language.

The heuristic of HANS: a weighted sum of four parts, each in [0, 1]. It lies in this room because
training adapts to it and evaluation reports by it.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import regex
from pydantic import BaseModel, ConfigDict

from anmi.ragged import Float64s

# Letters, their marks and digits; apostrophes, and the two invisible characters that Indic and
# Arabic spelling puts inside words, stand between letters.
_RUN: Final = regex.compile(
    r"(?:[\p{L}\p{M}\p{N}]|(?<=[\p{L}\p{M}])['’\u200c\u200d](?=[\p{L}\p{M}]))+"
)
_MARKS: Final = regex.compile(r"[\p{P}\p{S}]")
# Accents that combine with letters of any script, full-width forms; Chinese and Japanese mix
# scripts within a word.
_SCRIPTS: Final = {
    "COMBINING": "",
    "MODIFIER": "",
    "FULLWIDTH": "LATIN",
    "HALFWIDTH": "CJK",
    "HIRAGANA": "CJK",
    "KATAKANA": "CJK",
}


def split_words(text: str) -> list[tuple[str, str]]:
    """Return the words, each with its script: runs of letters and digits, and ideographs.

    An apostrophe stays inside its word. Thai and other scripts that write without blanks,
    ideographs aside, give one word for each run. Scripts are called as in Unicode (``LATIN``), that
    of a number is empty.

    Examples
    --------
    >>> split_words("don't stop 中文 42")
    [("don't", 'LATIN'), ('stop', 'LATIN'), ('中', 'CJK'), ('文', 'CJK'), ('42', '')]
    """
    words = []
    for match in _RUN.finditer(text):
        word = ""
        scripts = ""
        before = ("", False)
        for character in match[0]:
            current = _script(character)
            if word and (
                current[1] or before[1] or (current[0] and before[0] and current[0] != before[0])
            ):
                words.append((word, scripts))
                word = ""
                scripts = ""
            word = word + character
            scripts = max(scripts, current[0])
            before = current
        words.append((word, scripts))
    return words


@lru_cache(maxsize=65536)
def _script(character: str) -> tuple[str, bool]:
    """Return the script of a letter, and whether it is an ideograph."""
    if unicodedata.category(character)[0] not in "LM":
        return "", False
    # The standard library knows no scripts, but the name of a letter starts with its own.
    script = unicodedata.name(character, "").split(" ")[0].split("-")[0]
    return _SCRIPTS.get(script, script), script == "CJK"


# Languages that are told apart within a script; any other script belongs to one language.
LANGUAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "LATIN": ("de", "en", "es", "fr", "id", "it", "nl", "pl", "pt", "sv", "tr"),
    "CYRILLIC": ("bg", "ru", "uk"),
    "ARABIC": ("ar", "fa", "ur"),
}
# A word must be this much likelier (powers of ten) in another language: many words and most names
# exist in several.
_SWITCH: Final = 1.3
_UNLISTED: Final = 1e-7


# From the report: weights of the words, the entropy of characters, the punctuation and the mixed
# languages; and the values from which the first three count in full, in words, in bits and as a
# share.
_WEIGHTS: Final = (0.35, 0.25, 0.20, 0.20)
_MOST_TOKENS = 24.0
_MOST_ENTROPY = 4.0
_MOST_PUNCTUATION = 0.25
CodeMix = Literal["language", "script"]


class HardnessParams(BaseModel):
    """What makes a query hard."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code_mix: CodeMix = "script"


def hardness(texts: Sequence[str], code_mix: CodeMix = "language") -> Float64s:
    """Return how hard queries are, in [0, 1], larger is harder, float64 [Q].

    0.35·min(tokens/24, 1) + 0.25·min(entropy/4 bits, 1) + 0.20·min(punctuation share/0.25, 1) +
    0.20·code-mix share. Each Chinese character is a token; entropy is that of the characters of a
    query, and punctuation includes symbols and apostrophes.

    Parameters
    ----------
    texts
        Q queries; an empty one has a hardness of 0.
    code_mix
        What must differ for a word to be mixed in, see :func:`mixed_share`.

    Examples
    --------
    >>> hardness(["aab?"], "script").round(4).tolist()
    [0.3083]
    """
    return np.array([_hardness(text, code_mix) for text in texts], np.float64)


def _hardness(text: str, code_mix: CodeMix) -> float:
    words = split_words(text)
    counts = sorted(Counter(text).items())
    shares = [count / len(text) for _, count in counts]
    # The sum may be -0.0 or a rounding below it.
    entropy = max(sum(-share * math.log2(share) for share in shares), 0.0)
    marks = len(_MARKS.findall(text)) / max(len(text), 1)
    parts = (
        len(words) / _MOST_TOKENS,
        entropy / _MOST_ENTROPY,
        marks / _MOST_PUNCTUATION,
        mixed_share(words, code_mix),
    )
    weighted = zip(_WEIGHTS, parts, strict=True)
    total = sum(weight * min(part, 1.0) for weight, part in weighted)
    return min(total, 1.0)


def mixed_share(words: Sequence[tuple[str, str]], by: CodeMix = "language") -> float:
    """Return the share of words whose script or language is not the main one.

    The main script is that of most words, the main language the one that makes the words of that
    script likeliest. A word of it is mixed in if another language has it twenty times as often.
    Numbers are no words here.

    Parameters
    ----------
    words
        Of a text, see :func:`split_words`.
    by
        ``language`` looks at both, by lists of word frequencies; ``script`` at scripts only.

    Examples
    --------
    >>> mixed_share(split_words("what is कल का मौसम"), by="script")
    0.4
    """
    of_script: dict[str, list[str]] = {}
    for word, script in sorted(words, key=lambda pair: pair[1]):
        if script:
            of_script.setdefault(script, []).append(word.lower())
    if not of_script:
        return 0.0
    count = sum(map(len, of_script.values()))
    main = max(of_script, key=lambda script: len(of_script[script]))
    mixed = count - len(of_script[main])
    if by == "language" and main in LANGUAGES:
        frequencies = [_frequencies(word[:100], LANGUAGES[main]) for word in of_script[main]]
        likelihood = np.log10(frequencies)
        home = likelihood.sum(axis=0).argmax()
        gain = likelihood.max(axis=1) - likelihood[:, home]
        mixed += int((gain > _SWITCH).sum())
    return mixed / count


@lru_cache(maxsize=65536)
def _frequencies(word: str, languages: tuple[str, ...]) -> list[float]:
    import wordfreq

    return [wordfreq.word_frequency(word, language, minimum=_UNLISTED) for language in languages]
