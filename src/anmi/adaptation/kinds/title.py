"""The title asks for the text."""

from __future__ import annotations

from anmi.adaptation.views import Document, View


def title(document: Document, most: int, seed: int) -> list[View]:
    """Return the title as the query and the text as the document.

    Where the text begins with the title once more, as many do, it is taken out there as well.

    Examples
    --------
    >>> title(Document("d", "Rain", "Rain. It falls.", "en"), 5, seed=1)
    [View(query='Rain', positive='It falls.')]
    """
    query, text = document.title.strip(), document.text.strip()
    while query and text[: len(query)].casefold() == query.casefold():
        text = text[len(query) :].lstrip(" \t\n.:-–—|")
    return [View(query, text)] if query and text and most else []
