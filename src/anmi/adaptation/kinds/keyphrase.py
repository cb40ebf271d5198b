"""The best terms of a document, as people type them, ask for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final

import regex

from anmi import seeds
from anmi.adaptation.views import Document, Make, Material, View
from anmi.corpus.sentences import UNSPACED
from anmi.retrieval.tokenize import resolve, tokenizer

_WORD: Final = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[-'’][\p{L}\p{M}\p{N}]+)*")
_LETTER: Final = regex.compile(r"\p{L}")
_LEAST: Final = 2
_MOST: Final = 6
# Term and the form that it has in the text, in order of the text.
_Cut = Callable[[str], list[tuple[str, str]]]


def keyphrase(material: Material) -> Make:
    """Learn how rare each term is, and return what asks a document by its best 2 to 6 terms.

    The terms are words in the form that the document has most often, in the order in which it has them, and nothing is
    taken out of it: a relevant document has to hold them. They are no more than half of its terms, as all of them would
    be the document once more. Views differ in how many terms they have. Where words are
    neither parted by blanks nor known to a dictionary here (Japanese, Thai), there are no keyphrases.

    Parameters
    ----------
    material
        Documents whose frequencies are counted: N of them, df holding a term.

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
    cut = _cutter(material.language)
    frequency = Counter(term for document in material.documents for term in {term for term, _ in cut(_text(document))})
    count = len(material.documents)

    def make(document: Document, most: int, seed: int) -> list[View]:
        forms: dict[str, Counter[str]] = {}
        for term, form in cut(_text(document)):
            forms.setdefault(term, Counter())[form] += 1
        weights = {
            term: found.total() * (1 + math.log((1 + count) / (1 + frequency[term]))) for term, found in forms.items()
        }
        # Of equal weight are those first that the document has first.
        best = sorted(weights, key=lambda term: -weights[term])[: min(_MOST, len(forms) // 2)]
        sizes = range(_LEAST, len(best) + 1)
        order = seeds.stream(seed, "adaptation/keyphrase", document.document_id).permutation(len(sizes))[:most]
        views = []
        for place in order.tolist():
            chosen = set(best[: sizes[place]])
            words = (found.most_common(1)[0][0] for term, found in forms.items() if term in chosen)
            views.append(View(" ".join(words), _text(document)))
        return views

    return make


def _text(document: Document) -> str:
    return f"{document.title} {document.text}".strip()


def _cutter(language: str) -> _Cut:
    """Return what finds the terms of a text that may be part of a keyphrase, with their forms."""
    kind = resolve("auto", language)
    tokenize = tokenizer(kind, language)
    if kind in ("kiwi", "jieba"):
        # Their tokens are words as they are written.
        return lambda text: [(term, term) for term in tokenize([text])[0] if len(term) > 1 and _LETTER.search(term)]

    @cache
    def term_of(word: str) -> str | None:
        if not _LETTER.search(word) or UNSPACED.search(word):
            return None
        # Stop words and single letters have no token; of a compound the tokens are one term.
        return " ".join(tokenize([word])[0]) if kind == "snowball" else word.casefold() if len(word) > 1 else None

    return lambda text: [(term, form) for form in _WORD.findall(text) if (term := term_of(form))]
