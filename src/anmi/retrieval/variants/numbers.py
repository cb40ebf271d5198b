"""Numbers in a text, and other ones written the same way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from anmi.retrieval.variants.dates import date_places
from anmi.retrieval.variants.mentions import Span, overlaps

# By which share of its value a number moves: far enough to be wrong, near enough to be believed.
_SHIFT: Final = (0.1, 0.6)
_TRIES: Final = 8

_GROUPED: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:[\u00a0\u202f]\d{3})+(?:[.,]\d+)?"
_DOTTED: Final = r"\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}\.\d{3},\d+"
_UNIT: Final = (
    r"(?:°?[CFKWVAgmLshx]|[kKMGTcmnµμ]?(?:m|g|l|L|Hz|W|V|B|b|Pa|bp|Da|M|mol)|min|ms|mm²|m²|km²|px|bits?|fold)?"
)
# Parts of codes, ranges, versions, paths and formulas are none.
_NUMBER: Final = re.compile(
    rf"(?<![\w.,:/\\#=^@&'’\-−–—\[])(?<!\w\()(?P<number>{_GROUPED}|{_DOTTED}|\d+[.,]\d+|\d+)"
    rf"(?={_UNIT}(?![\w/:\\^@\-−–—'’′]))(?![.,]\d)"
)
_ENUMERATION: Final = re.compile(r"[.)]\s")
_THOUSANDS: Final = re.compile(r"(?<=\d)(?=(?:\d{3})+\Z)")


def number_places(text: str, names: Sequence[Span]) -> list[Span]:
    """Return where numbers stand that are neither dates nor parts of something else.

    Examples
    --------
    >>> text = "In 1990, 1,200 of 5.6 kg by HTML5 on 10-20 %"
    >>> [text[start:end] for start, end in number_places(text, [])]
    ['1,200', '5.6']
    """
    taken = sorted([*names, *((date.start, date.end) for date in date_places(text, names))])
    return [
        found.span("number")
        for found in _NUMBER.finditer(text)
        if not overlaps(taken, *found.span("number")) and not _is_enumeration(text, found)
    ]


def numbers_in(text: str) -> set[float]:
    """Return the values of all numbers in a text, dates or not.

    Examples
    --------
    >>> sorted(numbers_in("25.0 of 1,200"))
    [25.0, 1200.0]
    """
    return {float(_Written(found["number"]).value) for found in _NUMBER.finditer(text)}


def changed_number(text: str, place: Span, taken: frozenset[float], random: np.random.Generator) -> str | None:
    """Return another number in the form of the one that stands there, or None if none was found.

    Decimals, separators, leading zeros and the roundness of the number stay; it remains positive, and a percentage
    up to 100 remains one.

    Parameters
    ----------
    text, place
        Where it stands.
    taken
        Values that it must not have.
    random
        What decides on it.

    Examples
    --------
    >>> changed_number("12,500.00", (0, 9), frozenset(), np.random.default_rng(1))
    '8,100.00'
    """
    old = _Written(text[slice(*place)])
    percent = text[place[1] :].lstrip().startswith(("%", "percent", "per cent"))
    highest = 100 * 10**old.decimals if percent and old.value <= 100 else None
    for _ in range(_TRIES):
        new = _moved(old, highest, random)
        written = old.like(new)
        if new != old.scaled and _Written(written).value not in taken:
            return written
    return None


def _moved(old: _Written, highest: int | None, random: np.random.Generator) -> int:
    share = float(random.uniform(*_SHIFT))
    sign = 1 if random.random() < 0.5 else -1
    step = max(1, round(old.scaled / old.step * share))
    new = old.scaled + sign * step * old.step
    if new <= 0 or (highest is not None and new > highest):
        new = old.scaled - sign * step * old.step
    return max(new, 0) if highest is None else min(max(new, 0), highest)


class _Written:
    """A number as it is written.

    Attributes
    ----------
    scaled, decimals
        Its value is ``scaled`` / 10^``decimals``.
    step
        The smallest change of ``scaled`` that keeps it as round as it is, but for two digits.
    """

    def __init__(self, text: str) -> None:
        mark, separator = _marks(text)
        whole, _, fraction = text.partition(mark) if mark else (text, "", "")
        self._mark, self._separator = mark, separator
        digits = "".join(character for character in whole if character.isdigit())
        self.decimals, self.scaled, self._width = len(fraction), int(digits + fraction), len(digits)
        zeros = len(digits + fraction) - len((digits + fraction).rstrip("0"))
        round_ = min(zeros, max(len(str(self.scaled)) - 2, 0))
        self.step = 10 ** max(round_, self.decimals if zeros >= self.decimals else 0)

    @property
    def value(self) -> float:
        return self.scaled / 10**self.decimals

    def like(self, scaled: int) -> str:
        """Write another number the same way."""
        digits = str(scaled).zfill(self.decimals + 1)
        whole, fraction = (digits[: -self.decimals], digits[-self.decimals :]) if self.decimals else (digits, "")
        whole = whole.zfill(self._width) if self._separator == "" and self._leads else whole
        return _THOUSANDS.sub(self._separator, whole) + self._mark + fraction

    @property
    def _leads(self) -> bool:
        """Whether it has leading zeros, as in 007."""
        return len(str(self.scaled)) < self._width + self.decimals and self._width > 1


def _marks(text: str) -> tuple[str, str]:
    """Return the decimal mark and the separator of thousands that a number is written with."""
    if not re.fullmatch(r"\d+[.,]?\d*", text) or re.fullmatch(r"\d{1,3},\d{3}", text):
        separator = next(character for character in text if not character.isdigit())
        rest = [character for character in text if not character.isdigit() and character != separator]
        return (rest[0] if rest else ""), separator
    return next((character for character in text if not character.isdigit()), ""), ""


def _is_enumeration(text: str, found: re.Match[str]) -> bool:
    """Whether it numbers an item of a list, as in ``1. First`` at the start of a line."""
    start, end = found.span("number")
    return text[:start].rstrip(" \t(")[-1:] in ("", "\n") and bool(_ENUMERATION.match(text, end))
