"""A language model says what a document is searched for."""

from __future__ import annotations

from anmi.adaptation.views import Document, Make, Material, View
from anmi.errors import AnmiError


def llm(material: Material) -> Make:
    """Let a language model write queries for the documents, and return what hands them out.

    Nothing is taken out of the document: the model is asked for other words than its own.

    Parameters
    ----------
    material
        Its ``write`` asks the model about all documents at once.

    Raises
    ------
    AnmiError
        There is no language model, or its endpoint refuses requests as such.
    """
    if material.write is None:
        raise AnmiError(
            'pseudo-queries of kind "llm" need a language model: set adaptation.llm.base_url and adaptation.llm.model, '
            "or leave the kind out"
        )
    written = material.write(material.documents)

    def make(document: Document, most: int, seed: int) -> list[View]:
        text = f"{document.title} {document.text}".strip()
        return [View(query, text) for query in written.get(document.document_id, [])[:most]]

    return make
