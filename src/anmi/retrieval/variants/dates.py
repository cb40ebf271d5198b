"""Dates in a text, and other ones written the same way."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from anmi.retrieval.variants.mentions import Span, overlaps

Day = tuple[int | None, int | None, int | None]

_MONTHS: Final = tuple(calendar.month_name)[1:]
_SHORT: Final = tuple(calendar.month_abbr)[1:]
_YEARS: Final = 15
_TRIES: Final = 8

_FOUR: Final = r"(?:1\d|20)\d\d"
_ISO: Final = re.compile(rf"(?<![\w-])(?P<year>{_FOUR})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])(?![\d-])")
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
_NAME: Final = "|".join((*_MONTHS, *_SHORT, "Sept"))
_WRITTEN: Final = re.compile(
    rf"(?<![\w-])(?:(?P<before>{_DAY})(?:st|nd|rd|th)?(?:\sof)?\s)?(?P<month>{_NAME})\b\.?"
    rf"(?:\s(?P<day>{_DAY})(?:st|nd|rd|th)?\b(?![.:]\d))?(?:,?\s(?P<year>{_FOUR})\b)?"
)
_YEAR: Final = re.compile(rf"(?<![\w.,:/\\#=^@\-−–—])(?P<year>{_FOUR})(?![\w/:\\^@%\-−–—'’]|[.,]\d)")
# The last word before a year. Other bare numbers of four digits are years only if alone in brackets, or, from 1800 on,
# where no word follows that they could count.
_CUE_WORDS: Final = """
in since until till by before after during from circa about year years early late mid season class summer
winter spring autumn fall founded established completed introduced published released born died aired opened
built started ended date retirement
"""
_CUES: Final = frozenset(_CUE_WORDS.split())
_LAST_WORD: Final = re.compile(r"([^\W\d_]+)[\s|]*\Z")
_COUNTED: Final = re.compile(r"\s*(?:[^\W\d_]|%|\()")
_IN_BRACKETS: Final = re.compile(r"(?:\A|[^\w(\[])\(\Z")


@dataclass(frozen=True)
class Date:
    """A date in a text.

    Attributes
    ----------
    start, end
        Where it stands.
    parts
        Where its year, month and day stand, as far as it has them.
    """

    start: int
    end: int
    parts: dict[str, Span]

    def value(self, text: str) -> Day:
        """Return year, month and day."""
        year, month, day = (text[slice(*self.parts[name])] if name in self.parts else None for name in _PARTS)
        return _number(year), _month(month), _number(day)


_PARTS: Final = ("year", "month", "day")


def date_places(text: str, names: Sequence[Span] = ()) -> list[Date]:
    """Return the dates in a text that stand outside of names: ISO, with the name of a month, or a year alone.

    Examples
    --------
    >>> text = "Born 2 May 1950, it may end in 1990 or 2001-02-03; 1500 men saw 1900 ships"
    >>> [text[date.start : date.end] for date in date_places(text)]
    ['2 May 1950', '1990', '2001-02-03']
    """
    found: list[Date] = []
    taken = list(names)
    for pattern in (_ISO, _WRITTEN, _YEAR):
        for match in pattern.finditer(text):
            parts = {name: match.span(name) for name, value in match.groupdict().items() if value is not None}
            if "before" in parts:
                parts["day"] = parts.pop("before")
            if overlaps(taken, *match.span()) or (pattern is _YEAR and not _is_year(text, match)):
                continue
            if len(parts) > 1 or pattern is _YEAR:
                found.append(Date(*match.span(), parts))
        taken = sorted([*taken, *((date.start, date.end) for date in found)])
    return sorted(found, key=lambda date: date.start)


def dates_in(text: str) -> set[Day]:
    """Return the values of all dates in a text; four digits that are all of it are a year.

    Examples
    --------
    >>> dates_in("1950"), dates_in("May 1950")
    ({(1950, None, None)}, {(1950, 5, None)})
    """
    if _YEAR.fullmatch(text):
        return {(int(text), None, None)}
    return {date.value(text) for date in date_places(text)}


def changed_date(text: str, date: Date, taken: frozenset[Day], random: np.random.Generator) -> tuple[Span, str] | None:
    """Return which part of a date to write otherwise and how, or None if nothing was found.

    Parameters
    ----------
    text, date
        Where it stands.
    taken
        Dates that it must not agree with.
    random
        What decides on it.

    Examples
    --------
    >>> text = "30 January 1990"
    >>> changed_date(text, date_places(text)[0], frozenset(), np.random.default_rng(3))
    ((0, 2), '3')
    """
    value = date.value(text)
    parts = [name for name in _PARTS if name in date.parts]
    if value[0] is not None and value[1:] == (1, 1):
        # Where only the year is known, databases write its first day.
        value, parts = (value[0], None, None), ["year"]
    for _ in range(_TRIES):
        part = parts[int(random.integers(len(parts)))]
        span = date.parts[part]
        new = _other(part, value, random)
        place = _PARTS.index(part)
        candidate = (*value[:place], new, *value[place + 1 :])
        if new == value[place] or not _exists(candidate) or any(_agree(candidate, other) for other in taken):
            continue
        written = _written(new, text[slice(*span)], padded="-" in text[date.start : date.end])
        if part != "day" or _suffix(new) == _suffix(value[2]) or not text[span[1] : span[1] + 1].isalpha():
            return span, written
    return None


def _other(part: str, value: Day, random: np.random.Generator) -> int:
    if part == "year":
        shift = int(random.integers(1, _YEARS + 1))
        year = (value[0] or 0) + (shift if random.random() < 0.5 else -shift)
        return min(max(year, 1000), 2099)
    return int(random.integers(1, 13 if part == "month" else 32))


def _exists(value: tuple[int | None, ...]) -> bool:
    year, month, day = value
    # A leap year where the year is not known.
    return day is None or month is None or day <= calendar.monthrange(year or 2000, month)[1]


def _agree(value: tuple[int | None, ...], other: Day) -> bool:
    """Whether two dates are the same in all that both of them say."""
    both = [(one, two) for one, two in zip(value, other, strict=True) if one is not None and two is not None]
    return bool(both) and all(one == two for one, two in both)


def _written(value: int, old: str, *, padded: bool) -> str:
    if not old.isdigit():
        return (_MONTHS if old in _MONTHS else _SHORT)[value - 1]
    return f"{value:02d}" if padded or old.startswith("0") else str(value)


def _suffix(day: int | None) -> str:
    day = day or 0
    return "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _month(text: str | None) -> int | None:
    if text is None or text.isdigit():
        return _number(text)
    return next(place for place, name in enumerate(_MONTHS, 1) if name.startswith(text[:3]))


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _is_year(text: str, match: re.Match[str]) -> bool:
    if text[match.end() : match.end() + 1] == ")":
        # That of a call, as in array(1234), has none before it.
        return bool(_IN_BRACKETS.search(text[max(match.start() - 2, 0) : match.start()]))
    word = _LAST_WORD.search(text[max(match.start() - 40, 0) : match.start()])
    if word is not None and word[1].lower() in _CUES:
        return True
    return match[0] >= "1800" and not _COUNTED.match(text, match.end())
