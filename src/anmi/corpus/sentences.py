"""The module finds the language of a collection, its sentences and the number of words.

Sentences are found by sentencex (Wikimedia, MIT), which knows the full stops, abbreviations and
quotation marks of some 300 languages. What it does not know is that line breaks end headings, list
items and lines of tables, and that Thai and its neighbours write a blank where others write a full
stop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from anmi.corpus.texts import Texts, taken
from anmi.errors import AnmiError

# Thai to Tibetan, Myanmar, Khmer, kana and Han: no blanks between words.
UNSPACED: Final = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
# Words of these scripts have about two characters (Chinese 1.5, Thai 4).
_PER_WORD: Final = 2
# Languages in which a blank separates clauses, and nothing else does.
_BLANK_ENDS: Final = frozenset({"th", "lo", "km", "my", "bo"})
_LEAST_CLAUSE: Final = 30
_BLANK: Final = re.compile(r"[ \t]+")
# A line that is no continuation of the one before: after a colon, at another indentation, or as an
# item of a list.
_ITEM: Final = re.compile(r"(?:[-*+•·‣◦–—#>|]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s")
_LINE: Final = re.compile(r"[^\n]+")
# The time of sentencex grows with the square of a text's sentences, and it looks for the other end
# of each quote and bracket in the whole text, so it gets parts of this many characters.
_PART: Final = 16_000
_LETTERS: Final = re.compile(r"\w+")
# An excerpt shows words of a question with at least 3 letters; words with the same first 5 letters
# are alike.
_TELLING = 3
_STEM = 5
_READ: Final = 10_000
# A longer piece is no sentence but a list without punctuation, which is cut at every line break.
_LONGEST: Final = 400


# Languages for which bm25s carries a list of stop words, and what the English one lacks.
_STOPWORDS: Final = {"en", "de", "nl", "fr", "es", "pt", "it", "ru", "sv", "no", "tr", "da"}
_MORE_STOPWORDS: Final = {"en": {"i"}}
# Of them those that make another statement of one.
_TURNING: Final = """
and but if no nor not or und oder aber nicht kein keine keinen ohne maar niet geen et ou
mais ne ni non pas sans y o pero sin e ma senza mas não sem и или но не ни нет без och
eller men inte og ikke ve veya ama değil
"""
TURNING: Final = frozenset(_TURNING.split())


# What elision leaves of French and Italian words stands before an apostrophe; alone, as in
# "vitamine C", these letters tell something.
_ELIDED: Final = "cdjlmnst"


def stop_words(language: str) -> frozenset[str]:
    """Return the words of a language that tell nothing; none where no list is known."""
    from bm25s.tokenization import _infer_stopwords

    words = _infer_stopwords(language) if language in _STOPWORDS else []
    return frozenset(words).difference(_ELIDED) | _MORE_STOPWORDS.get(language, set())


def sentences(text: str, language: str) -> list[tuple[int, int]]:
    r"""Return where each sentence starts and ends.

    Parameters
    ----------
    text
        Any text; prose, lists, code.
    language
        ISO 639-1 code. For one that sentencex does not know it takes the rules of a related one, or
        of English.

    Returns
    -------
    list of (int, int)
        In characters, in order, without overlap and without white-space around; between them stands
        nothing but white-space.

    Examples
    --------
    >>> text = "See Fig. 2 for it. It is new!\n- one\n- two"
    >>> [text[start:end] for start, end in sentences(text, "en")]
    ['See Fig. 2 for it.', 'It is new!', '- one', '- two']
    """
    # A lone surrogate, which no encoding knows, is replaced by one character, so places stay the
    # same.
    plain = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
    parts = (line for piece in _pieces(plain, language) for line in _lines(text, *piece))
    if language in _BLANK_ENDS:
        parts = (clause for line in parts for clause in _clauses(text, *line))
    spans = []
    for start, end in parts:
        part = text[start:end]
        if part.strip():
            spans.append((end - len(part.lstrip()), start + len(part.rstrip())))
    return spans


def _pieces(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences start and end for sentencex."""
    from sentencex import get_sentence_boundaries

    start = 0
    while start < len(text):
        end = min(start + _PART, len(text))
        spans = [
            (start + piece["start_index"], start + piece["end_index"])
            for piece in get_sentence_boundaries(language, text[start:end])
        ]
        if end < len(text):
            # A sentence near the end of a part may go on behind it, so the next part begins there.
            spans = [piece for piece in spans if piece[1] <= end - _PART // 4]
            spans = spans or [(start, text.rfind(" ", end - _PART // 4, end) + 1 or end)]
            end = spans[-1][1]
        yield from spans
        start = end


def count_words(text: str) -> int:
    """Return the number of words; of scripts without blanks, two characters count as one.

    Examples
    --------
    >>> count_words("two words"), count_words("今日は雨です。"), count_words("")
    (2, 4, 0)
    """
    if text.isascii():
        return len(text.split())
    others, characters = UNSPACED.subn(" ", text)
    return len(others.split()) + -(-characters // _PER_WORD)


def excerpt(text: str, question: str, length: int) -> str:
    """Return the part of a text, of about ``length`` characters, with most words of a question.

    Examples
    --------
    >>> excerpt("It is old. Nobody knows who planted the oaks of Ely.", "Who planted that oak?", 30)
    '… knows who planted the oaks …'
    """
    stems = {word[:_STEM] for word in _LETTERS.findall(question.lower()) if len(word) >= _TELLING}
    words = [
        (match.start(), match[0].lower()[:_STEM]) for match in _LETTERS.finditer(text, 0, _READ)
    ]
    hits = [(start, word) for start, word in words if word in stems]
    counts = [
        len({word for start, word in hits if first <= start < first + length // 2})
        for first, _ in hits
    ]
    best = hits[counts.index(max(counts))][0] - length // 4 if hits else 0
    begin = text.find(" ", best) + 1 if best > 0 else 0
    part = text[begin : begin + length]
    part = f"{part.rsplit(None, 1)[0]} …" if begin + length < len(text) and part.strip() else part
    return f"… {part}" if begin else part


def _lines(
    text: str,
    start: int,
    end: int,
) -> Iterator[tuple[int, int]]:
    """Cut a piece into its lines, those of wrapped prose together."""
    if text.find("\n", start, end) < 0:
        yield start, end
        return
    wrapped = end - start <= _LONGEST
    before = ""
    begin = start
    for match in _LINE.finditer(text, start, end):
        line = match[0]
        if line.isspace():
            continue
        if before and not (wrapped and _goes_on(before, line)):
            yield begin, match.start()
            begin = match.start()
        before = line
    yield begin, end


def _goes_on(before: str, line: str) -> bool:
    """Tell whether a line is the continuation of the one before."""
    last = before.lstrip()
    next_line = line.lstrip()
    same = len(before) - len(last) == len(line) - len(next_line) or _ITEM.match(last) is not None
    return same and not last.rstrip().endswith(":") and _ITEM.match(next_line) is None


def _clauses(
    text: str,
    start: int,
    end: int,
) -> Iterator[tuple[int, int]]:
    """Cut at blanks, into parts that are no shorter than a clause."""
    begin = start
    for match in _BLANK.finditer(text, start, end):
        if match.start() - begin >= _LEAST_CLAUSE and end - match.end() >= _LEAST_CLAUSE:
            yield begin, match.start()
            begin = match.end()
    yield begin, end


# The codes of ISO 639-1.
_CODES: Final = """
aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv
dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie
ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv
mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm
rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts
tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
LANGUAGES: Final = frozenset(_CODES.split())
# Documents that are looked at, and how many characters of each: a recogniser needs a paragraph, not
# a page.
_SAMPLE: Final = 200
_PARAGRAPH: Final = 400
# Stems and stop words called Norwegian are of the standard that most write.
_SAME: Final = {"nb": "no"}


def language_code(language: str) -> str:
    """Return the code of a language by which tokens are chosen.

    Parameters
    ----------
    language
        ISO 639-1 code in any case, with or without script and region, or another code that
        :func:`detect_language` may return.

    Raises
    ------
    AnmiError
        There is no such language.

    Examples
    --------
    >>> language_code("hi"), language_code("pt_BR"), language_code("ZH-Hant-TW")
    ('hi', 'pt', 'zh')
    """
    code = language.strip().replace("_", "-").split("-")[0].lower()
    if code in LANGUAGES:
        return _SAME.get(code, code)
    import py3langid

    if code in {recognised for recognised, _ in py3langid.rank("")}:
        return code
    hint = f'did you mean "{code[:2]}"? Expected' if code[:2] in LANGUAGES else "expected"
    raise AnmiError(
        f'there is no language "{language}"; {hint}: an ISO 639-1 code such as en, de or ko'
    )


def detect_language(texts: Texts) -> str:
    """Return the code of the language most documents of an evenly spaced sample are recognised as.

    It is that of ISO 639-1, or of 639-3 for a language that has no other; ``en`` for no documents
    at all.
    """
    import py3langid

    spaced = np.linspace(0, len(texts) - 1, min(_SAMPLE, len(texts)))
    sample = taken(texts, np.unique(spaced.astype(int)))
    # Single short utterances are often misread; a handful read together seldom is.
    parts = [part for part in np.array_split(np.arange(len(sample)), 20) if len(part)]
    chunks = ["\n".join(sample[row][:_PARAGRAPH] for row in part.tolist()) for part in parts]
    votes = Counter(py3langid.classify(chunk)[0] for chunk in chunks)
    # Ties go to the first code in the alphabet, so that the answer does not depend on the order of
    # documents.
    return min(
        votes,
        key=lambda code: (-votes[code], code),
        default="en",
    )
