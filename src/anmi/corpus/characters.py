"""Characters and words of many texts at once: code points in one array, words by script, no loop over characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

LETTER, DIGIT, PUNCTUATION, JOINER = 1, 2, 3, 4
# Apostrophes, and the two invisible characters that Indic and Arabic spelling puts inside words.
_JOINERS: Final = "'’\u200c\u200d"
# Chinese and Japanese write words without blanks; their three scripts are mixed within a word.
_UNSPACED: Final = ("CJK", "HIRAGANA", "KATAKANA")


@dataclass(frozen=True)
class Characters:
    """The characters of T texts, one after another.

    Attributes
    ----------
    joined
        All texts without anything between them, C characters.
    text
        Number of the text each character stands in, int64 [C].
    place
        Number of each character among the distinct ones, int64 [C].
    kind
        ``LETTER`` (with its marks), ``DIGIT``, ``PUNCTUATION`` (and symbols), ``JOINER`` or 0, int8 [C].
    script
        Place in ``scripts``, -1 for characters of no script such as digits, int64 [C].
    ideograph
        Whether a character is a word by itself, bool [C].
    scripts
        Names of the scripts found, in alphabetical order, as Unicode names them (``LATIN``).
    count
        T.
    """

    joined: str
    text: NDArray[np.int64]
    place: NDArray[np.int64]
    kind: NDArray[np.int8]
    script: NDArray[np.int64]
    ideograph: NDArray[np.bool_]
    scripts: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class Words:
    """The words of T texts, in order.

    Attributes
    ----------
    text
        Number of the text, int64 [W].
    start, end
        Where in ``Characters.joined`` a word starts and ends, int64 [W].
    script
        Place of its script in ``Characters.scripts``, -1 for a number, int64 [W].
    """

    text: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    script: NDArray[np.int64]


def read_characters(texts: Sequence[str]) -> Characters:
    """Look up every character of ``texts``; only distinct ones are asked about."""
    joined = "".join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    distinct, place = np.unique(codes, return_inverse=True)
    known = [_character(int(code)) for code in distinct]
    scripts = sorted({script for _, script, _ in known if script})
    number = {"": -1} | {script: i for i, script in enumerate(scripts)}
    place = place.astype(np.int64)
    return Characters(
        joined,
        np.repeat(np.arange(len(texts)), [len(text) for text in texts]),
        place,
        np.array([kind for kind, _, _ in known], np.int8)[place],
        np.array([number[script] for _, script, _ in known], np.int64)[place],
        np.array([alone for _, _, alone in known], bool)[place],
        tuple(scripts),
        len(texts),
    )


def split_words(characters: Characters) -> Words:
    """Return the words: runs of letters and digits of one script, and single ideographs.

    An apostrophe stays inside its word. Thai and other scripts that write without blanks, ideographs aside, give one
    word for each run.

    Examples
    --------
    >>> characters = read_characters(["don't stop 中文"])
    >>> words = split_words(characters)
    >>> [characters.joined[a:b] for a, b in zip(words.start, words.end)]
    ["don't", 'stop', '中', '文']
    """
    kind, text, script = characters.kind, characters.text, characters.script
    letter = kind == LETTER
    # A joiner counts only between two letters of one text.
    inside = np.zeros(len(kind), bool)
    same = text[2:] == text[:-2]
    inside[1:-1] = (kind[1:-1] == JOINER) & letter[2:] & letter[:-2] & same
    in_word = letter | (kind == DIGIT) | inside
    where = np.flatnonzero(in_word)
    if not len(where):
        nothing = np.zeros(0, np.int64)
        return Words(nothing, nothing, nothing, nothing)
    before, here = where[:-1], where[1:]
    other_script = (script[before] != script[here]) & (script[before] >= 0) & (script[here] >= 0)
    apart = (here != before + 1) | (text[before] != text[here]) | other_script
    apart |= characters.ideograph[before] | characters.ideograph[here]
    first = np.flatnonzero(np.concatenate([[True], apart]))
    last = np.append(first[1:], len(where)) - 1
    start = where[first]
    return Words(text[start], start, where[last] + 1, np.maximum.reduceat(script[where], first))


@lru_cache(maxsize=65536)
def _character(code: int) -> tuple[int, str, bool]:
    """Return kind, script and whether it is an ideograph."""
    character = chr(code)
    if character in _JOINERS:
        return JOINER, "", False
    category = unicodedata.category(character)
    kind = {"L": LETTER, "M": LETTER, "N": DIGIT, "P": PUNCTUATION, "S": PUNCTUATION}.get(category[0], 0)
    if kind != LETTER:
        return kind, "", False
    # The standard library knows no scripts, but the name of a letter starts with its own.
    script = unicodedata.name(character, "").split(" ")[0].split("-")[0]
    # Accents that combine with letters of any script, full-width forms of Latin ones.
    if script in ("COMBINING", "MODIFIER", ""):
        return kind, "", False
    if script in ("FULLWIDTH", "HALFWIDTH"):
        return kind, "LATIN" if script == "FULLWIDTH" else "CJK", False
    return kind, "CJK" if script in _UNSPACED else script, script == "CJK"
