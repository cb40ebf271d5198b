"""The first sentence asks for what follows it."""

from __future__ import annotations

from anmi.adaptation.views import Document, View, without
from anmi.corpus.sentences import sentences


def first(document: Document, most: int, seed: int) -> list[View]:
    """Return the first sentence, and the document without it.

    Examples
    --------
    >>> first(Document("d", "", "Adds two numbers. Both may be arrays.", "en"), 5, seed=1)
    [View(query='Adds two numbers.', positive='Both may be arrays.')]
    """
    found = sentences(document.text, document.language)
    if len(found) < 2 or not most:
        return []
    start, end = found[0]
    return [View(" ".join(document.text[start:end].split()), without(document, start, end))]
