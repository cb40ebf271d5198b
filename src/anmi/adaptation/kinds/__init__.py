"""Kinds of pseudo-queries.

A kind is one function from a document to its views, and one line in :data:`KINDS`. What a pseudo-query is made of is
taken out of the document: a sentence that still stands there is found by any encoder, and nothing is learned from it.
Single terms may stay, which a relevant document has to hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anmi.adaptation.kinds.cloze import cloze
from anmi.adaptation.kinds.crop import crop
from anmi.adaptation.kinds.first import first
from anmi.adaptation.kinds.heading import heading
from anmi.adaptation.kinds.keyphrase import keyphrase
from anmi.adaptation.kinds.llm import llm
from anmi.adaptation.kinds.question import question
from anmi.adaptation.kinds.title import title
from anmi.adaptation.views import Document, Make, Material, View

__all__ = ["KINDS", "Document", "Kind", "Make", "Material", "View"]


@dataclass(frozen=True)
class Kind:
    """One kind of pseudo-queries.

    Attributes
    ----------
    fit
        Takes what is known of the corpus, and returns the function that makes views of a document: at most so many,
        drawn by a seed, fewer where the document offers fewer.
    meaning
        One sentence for people who choose among kinds.
    """

    fit: Callable[[Material], Make]
    meaning: str


def _alone(make: Make) -> Callable[[Material], Make]:
    """Return a kind that asks one document after the other and needs nothing else."""
    return lambda _: make


KINDS: Final[dict[str, Kind]] = {
    "title": Kind(_alone(title), "the title; the document is its text without it"),
    "cloze": Kind(_alone(cloze), "a sentence; the document is the rest (inverse cloze task, arXiv 1906.00300)"),
    "crop": Kind(_alone(crop), "a run of words; the document is the rest (after Contriever's crops, arXiv 2112.09118)"),
    "heading": Kind(_alone(heading), "a heading inside the text; the document is the section under it"),
    "first": Kind(_alone(first), "the first sentence; the document is the rest"),
    "keyphrase": Kind(keyphrase, "the 2 to 6 best terms by tf-idf; the document is all of it"),
    "question": Kind(question, "a question by templates, from a focus and a type in the metadata; English"),
    "llm": Kind(llm, "a query that a language model writes for the document, behind an OpenAI-compatible endpoint"),
}
