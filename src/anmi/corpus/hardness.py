"""How hard a query is to answer, told from its text alone: long, varied, punctuated, and mixed in language.

The heuristic of HANS: a weighted sum of four parts, each in [0, 1]. It lies in this room because training adapts to
it and evaluation reports by it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from anmi.errors import AnmiError

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
    characters = read_characters(texts)
    words = split_words(characters)
    lengths = np.bincount(characters.text, minlength=len(texts))
    marks = np.bincount(characters.text, weights=characters.kind == PUNCTUATION, minlength=len(texts))
    tokens = np.bincount(words.text, minlength=len(texts)).astype(np.float64)
    punctuation = marks / np.maximum(lengths, 1)
    entropy = _entropy(characters, lengths)
    mixed = mixed_share(characters, words, by=code_mix)
    parts = (tokens / _MOST_TOKENS, entropy / _MOST_ENTROPY, punctuation / _MOST_PUNCTUATION, mixed)
    value = sum(weight * np.minimum(part, 1.0) for weight, part in zip(_WEIGHTS, parts, strict=True))
    return Hardness(np.minimum(value, 1.0), tokens, entropy, punctuation, mixed)


def _entropy(characters: Characters, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Shannon entropy of each text's distribution of characters, in bits."""
    if not len(characters.text):
        return np.zeros(characters.count)
    size = int(characters.place.max()) + 1
    pairs, counts = np.unique(characters.text * size + characters.place, return_counts=True)
    text = pairs // size
    share = counts / lengths[text]
    # The sum of a text's terms may be -0.0 or a rounding below it.
    return np.maximum(np.bincount(text, weights=-share * np.log2(share), minlength=characters.count), 0.0)


def mixed_share(
    characters: Characters, words: Words, by: Literal["language", "script"] = "language"
) -> NDArray[np.float64]:
    """Return the share of each text's words whose script or language is not the main one, float64 [T].

    The main script is that of most words, the main language the one that makes the text's words of that script
    likeliest. A word of it is mixed in if another language has it twenty times as often. Numbers are no words here.

    Parameters
    ----------
    characters, words
        Of T texts.
    by
        ``language`` looks at both, by lists of word frequencies; ``script`` at scripts only.

    Raises
    ------
    AnmiError
        ``by`` is ``language`` and the extra ``code-mix`` is not installed.

    Examples
    --------
    >>> found = read_characters(["what is कल का मौसम", "all in one"])
    >>> mixed_share(found, split_words(found), by="script").tolist()
    [0.4, 0.0]
    """
    lettered = words.script >= 0
    text, script = words.text[lettered], words.script[lettered]
    size, scripts = max(len(characters.scripts), 1), list(characters.scripts)
    counts = np.bincount(text * size + script, minlength=characters.count * size).reshape(-1, size)
    home = counts.argmax(axis=1)
    mixed = (script != home[text]).astype(np.float64)
    for name, languages in LANGUAGES.items() if by == "language" else ():
        here = np.flatnonzero((script == home[text]) & (script == (scripts.index(name) if name in scripts else -2)))
        if len(here):
            spans = zip(words.start[lettered][here], words.end[lettered][here], strict=True)
            tokens = [characters.joined[start:end].lower() for start, end in spans]
            mixed[here] = _in_another_language(tokens, text[here], languages)
    return np.bincount(text, weights=mixed, minlength=characters.count) / np.maximum(counts.sum(axis=1), 1)


def _in_another_language(tokens: list[str], text: NDArray[np.int64], languages: Sequence[str]) -> NDArray[np.bool_]:
    """Return which words, [W], of the texts [W] are likelier in another language than the main one of their text."""
    wordfreq = _wordfreq()
    distinct, place = np.unique(tokens, return_inverse=True)
    listed = [
        [wordfreq.word_frequency(word[:100], language, minimum=_UNLISTED) for language in languages]
        for word in distinct
    ]
    likelihood = np.log10(np.array(listed))[place]
    of_text = np.zeros((int(text.max()) + 1, len(languages)))
    np.add.at(of_text, text, likelihood)
    home = of_text.argmax(axis=1)[text]
    return np.asarray(likelihood.max(axis=1) - likelihood[np.arange(len(text)), home] > _SWITCH)


def _wordfreq() -> Any:
    try:
        import wordfreq
    except ImportError as error:
        raise AnmiError(
            'telling the languages of words apart needs the package wordfreq: pip install "anmi[code-mix]", or set '
            "evaluation.hardness.code_mix to script"
        ) from error
    return wordfreq
