"""Where the names of entities stand in a text."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from typing import Final

Span = tuple[int, int]

_LITERAL: Final = re.compile(r'"(?P<value>.*)"(?:@[\w-]+|\^\^\S+)?', re.DOTALL)
# Thai, Lao, Burmese, Khmer, kana and Chinese characters: words stand without blanks between them.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_HANGUL: Final = re.compile(r"[\uac00-\ud7a3]")


def find_mentions(text: str, labels: Sequence[str]) -> list[list[Span]]:
    """Return where each label stands in a text as a whole word, in the order of the text.

    The longest label comes first and no two mentions overlap, so a name within a longer name is no mention. A label
    that stands twice in the list has none, as nobody can tell whose it is; nor has any other label there.

    Parameters
    ----------
    text
        Searched with regard to case.
    labels
        Empty ones have no mention.

    Returns
    -------
    list
        For each label the (start, end) of its mentions.

    Examples
    --------
    >>> find_mentions("Akron, Ohio is in Ohio, not in Ohioan", ["Ohio", "Akron, Ohio"])
    [[(18, 22)], [(0, 11)]]
    """
    times = Counter(labels)
    taken: list[Span] = []
    found: dict[str, list[Span]] = {}
    for label in sorted(times, key=lambda one: (-len(one), one)):
        found[label] = []
        if not label:
            continue
        start = text.find(label)
        while start >= 0:
            end = start + len(label)
            if _is_whole(text, start, end) and not overlaps(taken, start, end):
                insort(taken, (start, end))
                found[label].append((start, end))
                start = text.find(label, end)
            else:
                start = text.find(label, start + 1)
    return [found[label] if times[label] == 1 else [] for label in labels]


def overlaps(spans: Sequence[Span], start: int, end: int) -> bool:
    """Return whether a stretch of text touches one of the spans, which are sorted and do not overlap.

    Examples
    --------
    >>> overlaps([(2, 5)], 4, 9), overlaps([(2, 5)], 5, 9)
    (True, False)
    """
    place = bisect_left(spans, (end,))
    return place > 0 and spans[place - 1][1] > start


def replaced(text: str, spans: Sequence[Span], new: str) -> str:
    """Return the text with other words in the place of the spans, which are sorted and do not overlap.

    Examples
    --------
    >>> replaced("a b a", [(0, 1), (4, 5)], "cc")
    'cc b cc'
    """
    parts, last = [], 0
    for start, end in spans:
        parts += [text[last:start], new]
        last = end
    return "".join((*parts, text[last:]))


def surface(node: str) -> str:
    """Return how a text would write a literal, or a node without a label.

    Examples
    --------
    >>> surface('"Aarhus, Denmark"@en'), surface("solo_singer"), surface("25.0")
    ('Aarhus, Denmark', 'solo singer', '25.0')
    """
    literal = _LITERAL.fullmatch(node)
    return (literal["value"] if literal else node).replace("_", " ")


def _is_whole(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    if _goes_on(text[start], before):
        return False
    # A Korean name takes its endings without a blank.
    return not _goes_on(text[end - 1], after) or bool(_HANGUL.match(text[end - 1]) and _HANGUL.match(after))


def _goes_on(edge: str, neighbour: str) -> bool:
    """Whether a word goes on beyond the edge of a stretch of text."""
    if not neighbour or (_UNSPACED.match(edge) and _UNSPACED.match(neighbour)):
        return False
    # Marks belong to the letter before them: "José" may be written with two characters in the end.
    return neighbour.isalnum() or neighbour == "_" or unicodedata.category(neighbour).startswith("M")
