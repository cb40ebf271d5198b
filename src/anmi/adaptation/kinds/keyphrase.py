"""The best terms of a document, as people type them, ask for it."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import regex
from numpy.typing import NDArray

from anmi import seeds
from anmi.adaptation.views import Document, Make, Material, View
from anmi.corpus.sentences import UNSPACED
from anmi.retrieval.terms import Terms
from anmi.retrieval.tokenize import DICTIONARIES, Tokenize, resolve, tokenizer

_WORD: Final = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[-'’][\p{L}\p{M}\p{N}]+)*")
# The same for texts in ASCII, in half of the time.
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:[-'][A-Za-z0-9]+)*")
_LETTER: Final = regex.compile(r"\p{L}")
_LEAST: Final = 2
_MOST: Final = 6
# Documents whose words are counted at once, which bounds memory.
_DOCUMENTS: Final = 2_000
# Of a document: each of its best terms, its place among them and the form that the document has most often, in the
# order of the text.
_Best = list[tuple[int, str]]
# Of each text, the numbers of its words.
_Cut = Sequence[NDArray[np.int32]]


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
    kind, own = resolve("auto", material.language), material.terms
    tokenize = tokenizer(kind, material.language)
    texts, names = [_text(each) for each in material.documents], [each.document_id for each in material.documents]
    if kind in DICTIONARIES and not (own and own.settings["tokenizer"] == kind):
        own = Terms.build(texts, tokenize)
    cut, words = _held(texts, own) if own and kind in DICTIONARIES else _words(texts)
    learned = [each for name, each in zip(names, cut, strict=True) if name not in material.new]
    best = dict(zip(names, _best(cut, learned, _terms(words, kind, tokenize), words), strict=True))

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


def _words(texts: Sequence[str]) -> tuple[_Cut, NDArray[np.object_]]:
    """Return the number of each word of each text, in their order, and the words by number."""
    number: defaultdict[str, int] = defaultdict()
    number.default_factory = number.__len__
    words = ((_ASCII_WORD if text.isascii() else _WORD).findall(text) for text in texts)
    found = [np.fromiter(map(number.__getitem__, each), np.int32) for each in words]
    return found, np.array(list(number), dtype=object)


def _held(texts: Sequence[str], terms: Terms) -> tuple[_Cut, NDArray[np.object_]]:
    """Return the same of terms by a dictionary: those that stand in the text, in the order in which they do first."""
    names, found = list(terms.vocabulary), []
    for text, start, end in zip(texts, terms.counts.indptr, terms.counts.indptr[1:], strict=False):
        lowered, held = unicodedata.normalize("NFC", text).lower(), terms.counts.indices[start:end]
        place = np.array([lowered.find(names[term]) for term in held.tolist()], np.int64)
        order = np.argsort(place, kind="stable")[np.count_nonzero(place < 0) :]
        found.append(np.repeat(held[order], terms.counts.data[start:end][order].astype(int)))
    return found, np.array(names, dtype=object)


def _terms(words: Iterable[str], kind: str, tokenize: Tokenize) -> NDArray[np.int64]:
    """Return the number of each word's term; -1 where it may be no part of a keyphrase."""
    number: dict[str, int] = {}

    def term(word: str) -> str:
        if not _LETTER.search(word) or (kind not in DICTIONARIES and UNSPACED.search(word)):
            return ""
        # Stop words and single letters have no token; of a compound the tokens are one term.
        if kind == "snowball":
            return " ".join(tokenize([word])[0])
        return word.casefold() if len(word) > 1 else ""

    return np.array([number.setdefault(each, len(number)) if each else -1 for each in map(term, words)], np.int64)


def _best(cut: _Cut, learned: _Cut, terms: NDArray[np.int64], words: NDArray[np.object_]) -> Iterator[_Best]:
    """Yield the best terms of each document, given by its words; how rare they are, ``learned`` says."""
    size, count = int(terms.max(initial=0)) + 1, len(learned)
    frequency = np.zeros(size, np.int64)
    for start in range(0, count, _DOCUMENTS):
        pair, _ = _pairs(learned[start : start + _DOCUMENTS], terms, size)
        frequency += np.bincount(pair[_begins(pair)] % size, minlength=size)
    idf = np.array([1 + math.log((1 + count) / (1 + each)) for each in frequency.tolist()])
    for start in range(0, len(cut), _DOCUMENTS):
        yield from _best_of_some(cut[start : start + _DOCUMENTS], terms, idf, words)


def _pairs(cut: _Cut, terms: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    cut: _Cut, terms: NDArray[np.int64], idf: NDArray[np.float64], words: NDArray[np.object_]
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
