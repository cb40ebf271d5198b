"""Which pseudo-queries are dropped, each for a reason that has a name."""

from __future__ import annotations

from collections import Counter
from string import ascii_letters
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from anmi.corpus.duplicates import normalised
from anmi.corpus.sentences import UNSPACED, count_words

KEPT: Final = ""
# A title or heading of one word is a query that people type; a sentence or a run of words of one is none.
_LETTERS: Final = ascii_letters.encode()
_BLANKS: Final = bytes(code for code in range(128) if chr(code).isspace())
_NAMES: Final = ("title", "heading", "keyphrase", "question", "llm", "doc2query")


class FilterOptions(BaseModel):
    """What a pseudo-query has to be like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    least_words: int = Field(4, ge=1)  # fmt: skip
    most_words: int = Field(150, ge=1)
    least_positive_words: int = Field(3, ge=1)
    most_documents: int = Field(2, ge=1)
    least_letters: float = Field(0.5, ge=0, le=1)  # fmt: skip


def reasons(
    made: pd.DataFrame, copies: frozenset[str], options: FilterOptions, barred: frozenset[str] = frozenset()
) -> pd.Series[str]:
    """Return why each pseudo-query is dropped, empty where it is kept.

    Parameters
    ----------
    made
        ``text, document_id, positive_text, kind``.
    copies
        Documents with the text of another one before them: one of a group is enough.
    options
        Bounds.
    barred
        Normalised texts of dev and test queries.

    Returns
    -------
    pandas.Series
        The first of these that holds. ``test_query``: a dev or test query asks the same. ``copy``: of a document of
        that text there are pseudo-queries already. ``too_short``, ``too_long``: the query. ``little_left``: the
        document without it. ``code_or_table``: too few letters. ``boilerplate``: several documents ask it. ``repeats``:
        the document still says it.
    """
    forms = [normalised(text) for text in made.text]
    words = np.array([count_words(text) for text in made.text])
    left = np.array([not _has_words(text, options.least_positive_words) for text in made.positive_text], bool)
    # The copies of a document ask what it asks, and are no reason to drop it.
    originals = {pair for pair in zip(forms, made.document_id, strict=True) if pair[1] not in copies}
    asked = Counter(form for form, _ in originals)
    repeats = [
        kind != "keyphrase" and _repeats(text, form)
        for kind, form, text in zip(made.kind, forms, made.positive_text, strict=True)
    ]
    least = np.where(made.kind.isin(_NAMES), 1, options.least_words)
    found: dict[str, NDArray[np.bool_]] = {
        "test_query": np.array([form in barred for form in forms], bool),
        "copy": made.document_id.isin(copies).to_numpy(bool),
        "too_short": words < least,
        "too_long": words > options.most_words,
        "little_left": left,
        "code_or_table": np.array([_letters(text) < options.least_letters for text in made.text], bool),
        "boilerplate": np.array([asked[form] > options.most_documents for form in forms], bool),
        "repeats": np.array(repeats, bool),
    }
    names = np.array([*found, KEPT], dtype=object)
    first = np.argmax(np.array([*found.values(), np.ones(len(made), bool)]), axis=0)
    return pd.Series(names[first], index=made.index)


def _repeats(text: str, form: str) -> bool:
    """Tell whether a text, once normalised, holds a normalised run of words.

    Examples
    --------
    >>> _repeats("They say: it rains, all day.", "it rains all day"), _repeats("It rained all day.", "it rains")
    (True, False)
    """
    if text.isascii() and form.isascii():
        # To normalise takes far longer than to see that one of the words is missing, most likely one of the longest.
        lowered = text.lower()
        if not all(word in lowered for word in sorted(form.split(), key=len, reverse=True)):
            return False
    return _holds(normalised(text), form)


def _holds(text: str, form: str) -> bool:
    """Tell whether a text holds a run of words, both normalised.

    Examples
    --------
    >>> _holds("it rains today", "rain"), _holds("today it rains", "it rains"), _holds("今天下雨了", "下雨")
    (False, True, True)
    """
    before, after = ("" if UNSPACED.match(character) else " " for character in (form[:1], form[-1:]))
    return f"{before}{form}{after}" in f" {text} "


def _has_words(text: str, least: int) -> bool:
    """Tell whether a text has at least so many words; a long one is not counted to its end."""
    return len(text.split(maxsplit=least)) >= least if text.isascii() else count_words(text) >= least


def _letters(text: str) -> float:
    """Return the share of letters, with their marks, among what is no white-space."""
    if text.isascii():
        filled = text.encode().translate(None, _BLANKS)
        return (len(filled) - len(filled.translate(None, _LETTERS))) / max(len(filled), 1)
    solid = "".join(text.split())
    return sum(character.isalpha() or not character.isascii() for character in solid) / max(len(solid), 1)
