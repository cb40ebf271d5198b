"""The module finds where the sentences of a text start and end, and how many words it has.

Sentences are found by sentencex (Wikimedia, MIT), which knows the full stops, abbreviations and quotation marks of some
300 languages. What it does not know is that line breaks end headings, list items and lines of tables, and that Thai
and its neighbours write a blank where others write a full stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# Thai to Tibetan, Myanmar, Khmer, kana and Han: no blanks between words.
UNSPACED: Final = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Words of these scripts have about two characters (Chinese 1.5, Thai 4).
_PER_WORD: Final = 2
# Languages in which a blank separates clauses, and nothing else does.
_BLANK_ENDS: Final = frozenset({"th", "lo", "km", "my", "bo"})
_LEAST_CLAUSE: Final = 30
_BLANK: Final = re.compile(r"[ \t]+")
# A line that is no continuation of the one before: after a colon, at another indentation, or as an item of a list.
_ITEM: Final = re.compile(r"(?:[-*+•·‣◦–—#>|]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s")
_LINE: Final = re.compile(r"[^\n]+")
# The time of sentencex grows with the square of a text's sentences, and it looks for the other end of each quote and
# bracket in the whole text, so it gets parts of this many characters.
_PART: Final = 16_000
_LETTERS: Final = re.compile(r"\w+")
# An excerpt shows words of a question with at least 3 letters; words with the same first 5 letters are alike.
_TELLING, _STEM = 3, 5
_READ: Final = 10_000
# A longer piece is no sentence but a list without punctuation, which is cut at every line break.
_LONGEST: Final = 400


def sentences(text: str, language: str) -> list[tuple[int, int]]:
    r"""Return where each sentence starts and ends.

    Parameters
    ----------
    text
        Any text; prose, lists, code.
    language
        ISO 639-1 code. For one that sentencex does not know it takes the rules of a related one, or of English.

    Returns
    -------
    list of (int, int)
        In characters, in order, without overlap and without white-space around; between them stands nothing but
        white-space.

    Examples
    --------
    >>> text = "See Fig. 2 for it. It is new!\n- one\n- two"
    >>> [text[start:end] for start, end in sentences(text, "en")]
    ['See Fig. 2 for it.', 'It is new!', '- one', '- two']
    """
    # A lone surrogate, which no encoding knows, is replaced by one character, so places stay the same.
    known = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
    parts = (part for piece in _pieces(known, language) for part in _parts(text, *piece, language))
    found = (_stripped(text, *part) for part in parts)
    return [(start, end) for start, end in found if start < end]


def _pieces(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences start and end for sentencex."""
    from sentencex import get_sentence_boundaries

    start = 0
    while start < len(text):
        end = min(start + _PART, len(text))
        found = [(start + piece["start_index"], start + piece["end_index"])
                 for piece in get_sentence_boundaries(language, text[start:end])]  # fmt: skip
        if end < len(text):
            # A sentence near the end of a part may go on behind it, so the next part begins there.
            found = [piece for piece in found if piece[1] <= end - _PART // 4]
            found = found or [(start, text.rfind(" ", end - _PART // 4, end) + 1 or end)]
            end = found[-1][1]
        yield from found
        start = end


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where a part starts and ends without the white-space around it."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, start + len(part.strip())


def count_words(text: str) -> int:
    """Return the number of words; of scripts without blanks, two characters count as one.

    Examples
    --------
    >>> count_words("two words"), count_words("今日は雨です。"), count_words("")
    (2, 4, 0)
    """
    words = len(text.split())
    if text.isascii():
        return words
    characters = len(UNSPACED.findall(text))
    if not characters:
        return words
    others = len(UNSPACED.sub(" ", text).split())
    return others + -(-characters // _PER_WORD)


def excerpt(text: str, question: str, length: int) -> str:
    """Return the part of a text, about so many characters long, in which most words of a question stand.

    Examples
    --------
    >>> excerpt("It is old. Nobody knows who planted the oaks of Ely.", "Who planted that oak?", 30)
    '… knows who planted the oaks …'
    """
    asked = {word[:_STEM] for word in _LETTERS.findall(question.lower()) if len(word) >= _TELLING}
    words = [(match.start(), match[0].lower()[:_STEM]) for match in _LETTERS.finditer(text, 0, _READ)]
    found = [(start, word) for start, word in words if word in asked]
    counts = [len({word for start, word in found if first <= start < first + length // 2}) for first, _ in found]
    best = found[counts.index(max(counts))][0] - length // 4 if found else 0
    begin = text.find(" ", best) + 1 if best > 0 else 0
    part = text[begin : begin + length]
    part = f"{part.rsplit(None, 1)[0]} …" if begin + length < len(text) and part.strip() else part
    return f"… {part}" if begin else part


def _parts(text: str, start: int, end: int, language: str) -> Iterator[tuple[int, int]]:
    """Cut a piece at line breaks that end something, or at blanks that stand for full stops."""
    for first, last in _lines(text, start, end):
        if language in _BLANK_ENDS:
            yield from _clauses(text, first, last)
        else:
            yield first, last


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a piece into its lines, those of wrapped prose together."""
    wrapped = end - start <= _LONGEST
    before, begin = "", start
    for match in (match for match in _LINE.finditer(text, start, end) if match[0].strip()):
        if before and not (wrapped and _goes_on(before, match[0])):
            yield begin, match.start()
            begin = match.start()
        before = match[0]
    yield begin, end


def _goes_on(before: str, line: str) -> bool:
    """Tell whether a line is the continuation of the one before."""
    indented = [len(one) - len(one.lstrip()) for one in (before, line)]
    same = indented[0] == indented[1] or _ITEM.match(before.lstrip()) is not None
    return same and not before.rstrip().endswith(":") and _ITEM.match(line.lstrip()) is None


def _clauses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut at blanks, into parts that are no shorter than a clause."""
    begin = start
    for match in _BLANK.finditer(text, start, end):
        if match.start() - begin >= _LEAST_CLAUSE and end - match.end() >= _LEAST_CLAUSE:
            yield begin, match.start()
            begin = match.end()
    yield begin, end
