"""Kinds of pseudo-queries.

A kind is one function from a document to its views, and one line in :data:`KINDS`. What a pseudo-query is made of is
taken out of the document: a sentence that still stands there is found by any encoder, and nothing is learned from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anmi.adaptation.kinds.cloze import cloze
from anmi.adaptation.kinds.crop import crop
from anmi.adaptation.kinds.first import first
from anmi.adaptation.kinds.heading import heading
from anmi.adaptation.kinds.title import title
from anmi.adaptation.views import Document, View

__all__ = ["KINDS", "Document", "Kind", "View"]

Make = Callable[[Document, int, int], list[View]]


@dataclass(frozen=True)
class Kind:
    """One kind of pseudo-queries.

    Attributes
    ----------
    make
        Views of a document, at most so many, drawn by a seed: fewer where it offers fewer.
    meaning
        One sentence for people who choose among kinds.
    """

    make: Make
    meaning: str


KINDS: Final[dict[str, Kind]] = {
    "title": Kind(title, "the title; the document is its text without it"),
    "cloze": Kind(cloze, "a sentence; the document is the rest (inverse cloze task, arXiv 1906.00300)"),
    "crop": Kind(crop, "a run of words; the document is the rest (after Contriever's crops, arXiv 2112.09118)"),
    "heading": Kind(heading, "a heading inside the text; the document is the section under it"),
    "first": Kind(first, "the first sentence; the document is the rest"),
}
