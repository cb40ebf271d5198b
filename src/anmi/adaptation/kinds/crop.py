"""A run of words asks for the document that it was taken out of."""

from __future__ import annotations

from typing import Final

import regex

from anmi import seeds
from anmi.adaptation.views import Document, View, without
from anmi.corpus.sentences import UNSPACED

# Where words stand without blanks, two letters with their marks count as one, as anmi.corpus.sentences counts them.
_WORD: Final = regex.compile(rf"(?V1)(?:{UNSPACED.pattern}\p{{M}}*){{1,2}}|[\S--{UNSPACED.pattern}]+")
# Contriever's crops have 5 to 50 % of the text; a query of a few words at least.
_SHARES: Final = (0.05, 0.5)
_LEAST: Final = 5


def crop(document: Document, most: int, seed: int) -> list[View]:
    """Return runs of words of random length and place, each with the document without it.

    A text of fewer than ten words has none.
    """
    words = [match.span() for match in _WORD.finditer(document.text)]
    if len(words) < 2 * _LEAST:
        return []
    random = seeds.stream(seed, "adaptation/crop", document.document_id)
    views = []
    for _ in range(most):
        length = max(_LEAST, int(len(words) * random.uniform(*_SHARES)))
        first = int(random.integers(0, len(words) - length + 1))
        start, end = words[first][0], words[first + length - 1][1]
        views.append(View(" ".join(document.text[start:end].split()), without(document, start, end)))
    return list(dict.fromkeys(views))
