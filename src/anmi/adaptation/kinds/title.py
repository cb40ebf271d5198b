"""The title asks for the text."""

from __future__ import annotations

import unicodedata

from anmi.adaptation.views import Document, View
from anmi.corpus.sentences import UNSPACED


def title(document: Document, most: int, seed: int) -> list[View]:
    """Return the title as the query and the text as the document.

    Where the text begins with the title once more, as many do, it is taken out there as well.

    Examples
    --------
    >>> title(Document("d", "Rain", "Rain. It falls.", "en"), 5, seed=1)
    [View(query='Rain', positive='It falls.')]
    """
    query, text = document.title.strip(), document.text.strip()
    while query and text[: len(query)].casefold() == query.casefold() and _ends(query, text[len(query) :]):
        text = text[len(query) :].lstrip(" \t\n.:-–—|")
    return [View(query, text)] if query and text and most else []


def _ends(query: str, rest: str) -> bool:
    """Tell whether the words of a query end where the rest begins: "Rain" does not begin "Rainbows"."""
    if not rest or UNSPACED.match(rest):
        return True
    # Letters, marks and numbers; a mark after a letter belongs to it.
    word = [unicodedata.category(character)[0] in "LMN" for character in (query[-1], rest[0])]
    return not all(word)
