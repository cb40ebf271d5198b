"""A sentence asks for the document that it was taken out of."""

from __future__ import annotations

from anmi import seeds
from anmi.adaptation.views import Document, View, without
from anmi.corpus.sentences import sentences


def cloze(document: Document, most: int, seed: int) -> list[View]:
    """Return sentences, drawn without replacement, each with the document without it.

    A document of one sentence has none.

    Examples
    --------
    >>> sorted(cloze(Document("d", "A", "One is here. Two is there.", "en"), 5, seed=1))[0]
    View(query='One is here.', positive='A Two is there.')
    """
    found = sentences(document.text, document.language)
    if len(found) < 2:
        return []
    order = seeds.permutation(seed, "adaptation/cloze", document.document_id, len(found))[:most]
    views = (
        View(" ".join(document.text[start:end].split()), without(document, start, end))
        for start, end in (found[place] for place in order.tolist())
    )
    # One that is said twice is one view.
    return list(dict.fromkeys(views))
