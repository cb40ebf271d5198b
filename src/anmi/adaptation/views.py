"""One way to ask for a document with words of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from anmi.retrieval.terms import Terms


@dataclass(frozen=True)
class Document:
    """What pseudo-queries are made of.

    Attributes
    ----------
    document_id
        Keys its random draws.
    title, text
        As in the corpus; the title may be empty.
    language
        ISO 639-1 code of the collection.
    metadata
        As in the corpus, a JSON string.
    """

    document_id: str
    title: str
    text: str
    language: str
    metadata: str = "{}"


class View(NamedTuple):
    """A pseudo-query and the document without what it was made of."""

    query: str
    positive: str


# From a document, the most views that are wanted and a seed.
Make = Callable[[Document, int, int], list[View]]


class QuestionOptions(BaseModel):
    """Where metadata say what a document is about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    focus: str = Field("focus", min_length=1)
    type: str = Field("qtype", min_length=1)  # fmt: skip


@dataclass(frozen=True)
class Material:
    """What kinds may know of the corpus before they ask its documents.

    Attributes
    ----------
    documents
        All that will be asked.
    language
        ISO 639-1 code.
    question
        Where metadata say what a document is about.
    new
        Ids of documents that nothing is learned from.
    write
        Has a language model write queries, and returns those of each document by its id; None where there is no model.
    terms
        Of the documents, cut for BM25; None cuts them where a dictionary does.
    """

    documents: Sequence[Document]
    language: str
    question: QuestionOptions = field(default_factory=QuestionOptions)
    new: Collection[str] = ()
    write: Callable[[Sequence[Document]], Mapping[str, list[str]]] | None = None
    terms: Terms | None = None


def without(document: Document, start: int, end: int) -> str:
    """Return title and text of a document, the characters from ``start`` to ``end`` of the text taken out.

    Examples
    --------
    >>> without(Document("d", "A", "One. Two. Three.", "en"), 5, 9)
    'A One. Three.'
    """
    rest = f"{document.text[:start].rstrip()} {document.text[end:].lstrip()}".strip()
    return f"{document.title} {rest}".strip()
