"""Edits by rule: one place of a text changed so that it says something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi import seeds
from anmi.retrieval.variants.context import Context
from anmi.retrieval.variants.dates import Date, changed_date, date_places
from anmi.retrieval.variants.known import Known, Truths
from anmi.retrieval.variants.lexicon import ANTONYMS
from anmi.retrieval.variants.mentions import Span, overlaps
from anmi.retrieval.variants.negation import Change, negations
from anmi.retrieval.variants.numbers import changed_number, number_places

# Words within identifiers, paths and calls are no words.
_WORD: Final = re.compile(r"(?<![\w.`'’/@\-])(?:up-|down-)?[^\W\d_]+(?![\w`'’/@(]|\.\w)")
_SENTENCE: Final = re.compile(r"(?:\A|[.!?:;]\s+|\n\s*)[\"'“(]*\Z")
_ARTICLE: Final = re.compile(r"\b(?P<article>[Aa]n?) \Z")
# Constants of a programming language; other words with a capital within a sentence are names.
_CONSTANTS: Final = frozenset(("True", "False"))


@dataclass(frozen=True)
class Rule:
    """A kind of edit.

    Attributes
    ----------
    places
        From a text and the names in it, what could be changed, all of it outside of the names.
    change
        From the text, one of these, what is true besides and a random stream: where to write what, or None if nothing
        there says something else that is not known to be true.
    """

    places: Callable[[str, Sequence[Span]], Sequence[Any]]
    change: Callable[[str, Any, Known, np.random.Generator], Change | None]


def edited(
    rule: Rule, text: str, names: Sequence[Span], known: Callable[[], Known], random: Callable[[], np.random.Generator]
) -> tuple[str, str, str] | None:
    """Return the text with one place changed, what stood there and what stands there now; None if there is none.

    Parameters
    ----------
    rule
        The kind of edit.
    text, names
        What is edited, and where names stand in it that must stay, sorted.
    known, random
        Asked for only where there is something to change.

    Examples
    --------
    >>> edited(RULES["antonym"], "The largest one", [], Known, np.random.default_rng)
    ('The smallest one', 'largest', 'smallest')
    """
    places = rule.places(text, names)
    if not places:
        return None
    stream, truths = random(), known()
    for place in stream.permutation(len(places)).tolist():
        change = rule.change(text, places[place], truths, stream)
        if change is not None:
            (start, end), new = change
            return text[:start] + new + text[end:], text[start:end], new
    return None


def make_edits(context: Context, kinds: Sequence[str], seed: int) -> pd.DataFrame:
    """Return one text of each kind for every document in which its rule finds something to change.

    Parameters
    ----------
    context
        N documents; the names of the entities of their facts stay.
    kinds
        Of :data:`RULES`.
    seed
        Of the run; with kind and document id it names the random stream.

    Returns
    -------
    pandas.DataFrame
        ``place, kind, text, old, new``: place of the document in the context, and the words that were exchanged.
    """
    truths = Truths(context)
    rows = []
    for place, (identifier, text, names) in enumerate(zip(context.ids, context.texts, context.names, strict=True)):
        for kind in kinds:
            random = partial(seeds.stream, seed, f"variants/{kind}", identifier)
            made = edited(RULES[kind], text, names, partial(truths.of, place), random)
            if made is not None:
                rows.append((place, kind, *made))
    return pd.DataFrame(rows, columns=["place", "kind", "text", "old", "new"])


def _change_number(text: str, place: Span, known: Known, random: np.random.Generator) -> Change | None:
    new = changed_number(text, place, known.numbers, random)
    return None if new is None else (place, new)


def _change_date(text: str, place: Date, known: Known, random: np.random.Generator) -> Change | None:
    return changed_date(text, place, known.dates, random)


def _negations(text: str, names: Sequence[Span]) -> list[Change]:
    return [change for change in negations(text) if not overlaps(names, *change[0])]


def _opposed(text: str, names: Sequence[Span]) -> list[Span]:
    found = [match.span() for match in _WORD.finditer(text) if match[0].lower() in ANTONYMS]
    return [(start, end) for start, end in found if not overlaps(names, start, end) and _is_common(text, start, end)]


def _is_common(text: str, start: int, end: int) -> bool:
    """Whether a word is no name, in lower case or at the beginning of a sentence, and not in a line of an example."""
    word, line = text[start:end], text.rfind("\n", 0, start) + 1
    if text.startswith((">>>", "..."), line):
        return False
    if word.islower() or word in _CONSTANTS:
        return True
    return word.istitle() and bool(_SENTENCE.search(text[max(start - 20, 0) : start]))


def _change_word(text: str, place: Span, known: Known, random: np.random.Generator) -> Change | None:
    old = text[slice(*place)]
    new = ANTONYMS[old.lower()]
    if known.makes_true(old.lower(), new):
        return None
    new = new.capitalize() if old[0].isupper() else new
    article = _ARTICLE.search(text[max(place[0] - 4, 0) : place[0]])
    if article is None:
        return place, new
    start = place[0] - len(article[0])
    return (start, place[1]), article["article"][0] + ("n " if new[0].lower() in "aeiou" else " ") + new


RULES: Final[dict[str, Rule]] = {
    "number": Rule(number_places, _change_number),
    "date": Rule(date_places, _change_date),
    "negation": Rule(_negations, lambda text, place, known, random: place),
    "antonym": Rule(_opposed, _change_word),
}
