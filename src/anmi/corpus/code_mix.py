"""The share of a text's words that are not of its main script or its main language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from anmi.corpus.characters import Characters, Words, read_characters, split_words
from anmi.corpus.word_languages import LANGUAGES, log_likelihoods
from anmi.errors import AnmiError, nearest

By = Literal["language", "script"]
# A word must be this much likelier (powers of ten) in the second language; many words and most names are of several.
SWITCH: Final = 1.3
# What a second language must bring in all, so that one odd word does not make a mix.
ENTRY: Final = 0.3
_TEXTS_AT_ONCE: Final = 2000


def code_mix_share(
    texts: Sequence[str],
    *,
    by: By = "language",
    main: str | None = None,
    languages: Mapping[str, Sequence[str]] = LANGUAGES,
) -> NDArray[np.float64]:
    """Return the share of each text's words whose script or language is not the main one.

    The main script is that of most words. Among its words the text is explained by one language, or by two: the pair
    whose words are likeliest when a word may come from the second only if it is twenty times likelier there. Of the two
    the one with fewer words is mixed in. Numbers are no words here.

    Parameters
    ----------
    texts
        T texts.
    by
        ``language`` looks at both; ``script`` at scripts only, and needs no lists of words. It misses romanised Hindi
        in English.
    main
        The main language of all texts (one of ``languages``), where it is known from elsewhere, for example from the
        documents; then a text all in another language has a share of 1. None: each text's own.
    languages
        By script, the languages that are told apart. Fewer take less time and memory to load.

    Returns
    -------
    numpy.ndarray
        float64 [T] in [0, 1]; 0 for a text without words.

    Raises
    ------
    AnmiError
        ``by`` is ``language`` and the extra ``code-mix`` is not installed, or ``main`` is unknown.

    Examples
    --------
    >>> code_mix_share(["what is कल का मौसम", "all in one"], by="script").tolist()
    [0.4, 0.0]
    """
    characters = read_characters(texts)
    return mixed_share(characters, split_words(characters), by=by, main=main, languages=languages)


def mixed_share(
    characters: Characters,
    words: Words,
    *,
    by: By = "language",
    main: str | None = None,
    languages: Mapping[str, Sequence[str]] = LANGUAGES,
) -> NDArray[np.float64]:
    """Return what :func:`code_mix_share` does, for texts that have been split into words already."""
    lettered = words.script >= 0
    text, script = words.text[lettered], words.script[lettered]
    start, end = words.start[lettered], words.end[lettered]
    total = np.bincount(text, minlength=characters.count)
    if not len(text):
        return np.zeros(characters.count)
    size = len(characters.scripts)
    by_script = np.bincount(text * size + script, minlength=characters.count * size).reshape(-1, size)
    home = _script_of(main, languages) if main is not None else None
    main_script = by_script.argmax(1) if home is None else np.full(characters.count, _place(home, characters.scripts))
    mixed = (script != main_script[text]).astype(np.float64)
    if by == "language":
        for name, known in languages.items():
            here = (script == main_script[text]) & (script == _place(name, characters.scripts))
            if here.any() and len(known) > 1:
                tokens = [characters.joined[a:b].lower() for a, b in zip(start[here], end[here], strict=True)]
                mixed[here] = _second_language(tokens, text[here], known, main)
    return np.bincount(text, weights=mixed, minlength=characters.count) / np.maximum(total, 1)


def _second_language(
    tokens: list[str], text: NDArray[np.int64], languages: Sequence[str], main: str | None
) -> NDArray[np.float64]:
    """Return 1 for the words of the language mixed in, 0 for the others, [T]; ``text`` is sorted."""
    distinct, place = np.unique(tokens, return_inverse=True)
    table = log_likelihoods(distinct.tolist(), languages)
    number = None if main is None else list(languages).index(main)
    mixed = np.zeros(len(tokens))
    begins = np.flatnonzero(np.concatenate([[True], text[1:] != text[:-1]]))
    # A block of texts at a time: the comparison of all pairs of languages is large.
    for first in range(0, len(begins), _TEXTS_AT_ONCE):
        block = begins[first : first + _TEXTS_AT_ONCE]
        stop = begins[first + _TEXTS_AT_ONCE] if first + _TEXTS_AT_ONCE < len(begins) else len(tokens)
        rows = slice(block[0], stop)
        mixed[rows] = _explain(table[place[rows]], block - block[0], number)
    return mixed


def _explain(likelihood: NDArray[np.float32], begins: NDArray[np.int64], main: int | None) -> NDArray[np.float64]:
    """Find the best pair of languages of every text and return which of its words are of the rarer one.

    Parameters
    ----------
    likelihood
        [T, L], of the words of consecutive texts.
    begins
        First row of each of Q texts.
    main
        Column of the main language; None: each text's best.
    """
    languages = likelihood.shape[1]
    total = np.add.reduceat(likelihood, begins, axis=0)
    value = np.empty((len(begins), languages, languages))
    for a in range(languages):
        gain = np.maximum(likelihood - SWITCH - likelihood[:, a : a + 1], 0.0)
        value[:, a] = total[:, a : a + 1] + np.add.reduceat(gain, begins, axis=0) - ENTRY
        value[:, a, a] = total[:, a]
    if main is not None:
        value[:, np.arange(languages) != main] = -np.inf
    first, second = np.divmod(value.reshape(len(begins), -1).argmax(1), languages)
    lengths = np.diff(begins, append=len(likelihood))
    owner = np.repeat(np.arange(len(begins)), lengths)
    at = np.arange(len(likelihood))
    foreign = likelihood[at, second[owner]] - SWITCH > likelihood[at, first[owner]]
    if main is None:
        most = np.add.reduceat(foreign, begins, dtype=np.int64) * 2 > lengths
        foreign ^= most[owner]
    return foreign.astype(np.float64)


def _place(script: str, scripts: tuple[str, ...]) -> int:
    return scripts.index(script) if script in scripts else -2


def _script_of(language: str, languages: Mapping[str, Sequence[str]]) -> str:
    for script, names in languages.items():
        if language in names:
            return script
    known = sorted(name for names in languages.values() for name in names)
    raise AnmiError(f'unknown main language "{language}" of queries; {nearest(language, known)}')
