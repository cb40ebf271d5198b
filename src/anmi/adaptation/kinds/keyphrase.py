"""The best terms of a document, as people type them, ask for it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import regex
from numpy.typing import NDArray

from anmi import seeds
from anmi.adaptation.views import Document, Make, Material, View
from anmi.corpus.sentences import UNSPACED
from anmi.retrieval.tokenize import resolve, tokenizer

_WORD: Final = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[-'’][\p{L}\p{M}\p{N}]+)*")
# The same for texts in ASCII: cut at what is in no word, and by this where what may join words is left.
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:[-'][A-Za-z0-9]+)*")
_JOINING: Final = "-'"
_BETWEEN: Final = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) not in _JOINING}
_LETTER: Final = regex.compile(r"\p{L}")
_LEAST: Final = 2
_MOST: Final = 6
# Documents whose words are counted at once, which bounds memory.
_DOCUMENTS: Final = 2_000
# Of a document: each of its best terms, its place among them and the form that the document has most often, in the
# order of the text.
_Best = list[tuple[int, str]]


def keyphrase(material: Material) -> Make:
    """Learn how rare each term is, and return what asks a document by its best 2 to 6 terms.

    The terms are words in the form that the document has most often, in the order in which it has them, and nothing is
    taken out of it: a relevant document has to hold them. They are no more than half of its terms, as all of them would
    be the document once more. Views differ in how many terms they have. Where words are
    neither parted by blanks nor known to a dictionary here (Japanese, Thai), there are no keyphrases.

    Parameters
    ----------
    material
        Documents whose frequencies are counted: N of them that are not new, df holding a term.

    Returns
    -------
    Make
        A term's weight is tf · (1 + ln((1 + N) / (1 + df))), as scikit-learn's ``TfidfTransformer`` has it.

    Examples
    --------
    >>> texts = ["The sun is hot.", "The moon is cold; moons orbit the sun.", "The sea is wet."]
    >>> documents = [Document(str(number), "", text, "en") for number, text in enumerate(texts)]
    >>> keyphrase(Material(documents, "en"))(documents[1], 5, 1)
    [View(query='moon cold', positive='The moon is cold; moons orbit the sun.')]
    """
    forms = _Forms(material.language)
    cut = forms.of([_text(document) for document in material.documents])
    names = [document.document_id for document in material.documents]
    learned = [words for name, words in zip(names, cut, strict=True) if name not in material.new]
    best = dict(zip(names, _best(cut, learned, forms), strict=True))

    def make(document: Document, most: int, seed: int) -> list[View]:
        found, text = best[document.document_id], _text(document)
        sizes = range(_LEAST, len(found) + 1)
        order = seeds.permutation(seed, "adaptation/keyphrase", document.document_id, len(sizes))[:most]
        return [
            View(" ".join(word for place, word in found if place < sizes[chosen]), text) for chosen in order.tolist()
        ]

    return make


def _text(document: Document) -> str:
    return f"{document.title} {document.text}".strip()


class _Forms:
    """Numbers of the words of texts, in the form that they have there, and the term that each stands for."""

    def __init__(self, language: str) -> None:
        self._kind = resolve("auto", language)
        self._tokenize = tokenizer(self._kind, language)
        self._number: defaultdict[str, int] = defaultdict()
        self._number.default_factory = self._number.__len__

    def of(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the number of each word of each text."""
        found: list[NDArray[np.int32]] = []
        for start in range(0, len(texts), _DOCUMENTS):
            some = texts[start : start + _DOCUMENTS]
            if self._kind in ("kiwi", "jieba"):
                # Their tokens are words as they are written; of many texts at once, each core has some.
                words = self._tokenize(some)
            else:
                words = [_ascii_words(text) if text.isascii() else _WORD.findall(text) for text in some]
            found += [np.fromiter(map(self._number.__getitem__, each), np.int32) for each in words]
        return found

    def words(self) -> list[str]:
        """Return the words by number."""
        return list(self._number)

    def terms(self) -> NDArray[np.int64]:
        """Return the number of each word's term; -1 where it may be no part of a keyphrase."""
        number: dict[str, int] = {}
        terms = map(self._term, self._number)
        return np.array([number.setdefault(term, len(number)) if term else -1 for term in terms], np.int64)

    def _term(self, word: str) -> str | None:
        if not _LETTER.search(word):
            return None
        if self._kind in ("kiwi", "jieba"):
            return word if len(word) > 1 else None
        if UNSPACED.search(word):
            return None
        # Stop words and single letters have no token; of a compound the tokens are one term.
        if self._kind == "snowball":
            return " ".join(self._tokenize([word])[0])
        return word.casefold() if len(word) > 1 else None


def _ascii_words(text: str) -> list[str]:
    """Return what :data:`_ASCII_WORD` finds in a text, in half of the time.

    Examples
    --------
    >>> _ascii_words("X-ray, the dogs' -- a_b's don't")
    ['X-ray', 'the', 'dogs', 'a', "b's", "don't"]
    """
    found = text.translate(_BETWEEN).split()
    if not any(sign in text for sign in _JOINING):
        return found
    return [word for part in found for word in ((part,) if part.isalnum() else _ASCII_WORD.findall(part))]


def _best(cut: Sequence[NDArray[np.int32]], learned: Sequence[NDArray[np.int32]], forms: _Forms) -> Iterator[_Best]:
    """Yield the best terms of each document, given by its words; how rare they are, ``learned`` says."""
    terms, words = forms.terms(), np.array(forms.words(), dtype=object)
    size, count = int(terms.max(initial=0)) + 1, len(learned)
    frequency = np.zeros(size, np.int64)
    for start in range(0, count, _DOCUMENTS):
        pair, _ = _pairs(learned[start : start + _DOCUMENTS], terms, size)
        frequency += np.bincount(pair[_begins(pair)] % size, minlength=size)
    idf = np.array([1 + math.log((1 + count) / (1 + each)) for each in frequency.tolist()])
    for start in range(0, len(cut), _DOCUMENTS):
        yield from _best_of_some(cut[start : start + _DOCUMENTS], terms, idf, words)


def _pairs(
    cut: Sequence[NDArray[np.int32]], terms: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return document · size + term of each word that stands for a term, rising, and which word it is of all of them.

    Of one term those words are first that the document has first.
    """
    lengths = np.array([len(each) for each in cut])
    row, term = np.repeat(np.arange(len(cut)), lengths), terms[np.concatenate(cut)]
    word = np.flatnonzero(term >= 0)
    starts = np.cumsum(lengths) - lengths
    # One number for all: NumPy sorts numbers ten times as fast as it says where each would come.
    longest = int(lengths.max()) + 1
    keys = (row[word] * size + term[word]) * longest + word - starts[row[word]]
    keys.sort()
    pair, place = np.divmod(keys, longest)
    return pair, place + starts[pair // size]


def _begins(sorted_values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each value comes first."""
    return np.flatnonzero(np.diff(sorted_values, prepend=-1))


def _best_of_some(
    cut: Sequence[NDArray[np.int32]], terms: NDArray[np.int64], idf: NDArray[np.float64], words: NDArray[np.object_]
) -> Iterator[_Best]:
    of_words, word = _pairs(cut, terms, len(idf))
    # One pair for each document and each of its terms.
    begins = _begins(of_words)
    pairs, first, times = of_words[begins], word[begins], np.diff(begins, append=len(of_words))
    document, term = pairs // len(idf), pairs % len(idf)
    # Of equal weight are those first that the document has first.
    order = np.lexsort((first, -times * idf[term], document))
    sizes = np.bincount(document, minlength=len(cut))
    place = np.arange(len(pairs)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = place < np.repeat(np.minimum(_MOST, sizes // 2), sizes)
    chosen, place = order[kept], place[kept]
    number = np.full(len(pairs), -1)
    number[chosen] = np.arange(len(chosen))
    of_chosen = np.repeat(number, times)
    mine = np.flatnonzero(of_chosen >= 0)
    # In the order of the texts, which decides among forms.
    mine = mine[np.argsort(word[mine])]
    written = words[_most_often(of_chosen[mine], np.concatenate(cut)[word[mine]])]
    in_text = np.lexsort((first[chosen], document[chosen]))
    found = list(zip(place[in_text].tolist(), written[in_text].tolist(), strict=True))
    ends = np.cumsum(np.bincount(document[chosen], minlength=len(cut))).tolist()
    yield from (found[start:end] for start, end in zip([0, *ends], ends, strict=False))


def _most_often(group: NDArray[np.int64], form: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return for each group, in their order, the form that it has most often, and of several the one it has first."""
    size = int(form.max(initial=0)) + 1
    pairs, first, times = np.unique(group * size + form, return_index=True, return_counts=True)
    order = np.lexsort((first, -times, pairs // size))
    _, leads = np.unique(pairs[order] // size, return_index=True)
    most: NDArray[np.int64] = pairs[order][leads] % size
    return most
