"""The section of the report about the terms by which a sparse retriever finds documents."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

_TEXT: Final = 220


def sparse_terms(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a sentence, the documents with their terms, and the terms of queries as text.

    Parameters
    ----------
    found
        From :func:`anmi.evaluation.sparse_terms.sparse_terms`; empty for a dense retriever.

    Returns
    -------
    dict or None
        None where nothing was found out.
    """
    if not found:
        return None
    count, further = found["terms_per_document"], found["further_per_document"]
    return {
        "sentence": f"A document has {count:,.0f} terms on average, of which {further:,.0f} do not stand in its text.",
        "documents": [
            {
                "id": document["document_id"],
                "text": textwrap.shorten(document["text"], _TEXT, placeholder=" …"),
                "terms": [
                    {"term": term["term"], "weight": f"{term['weight']:.2f}", "further": term["further"]}
                    for term in document["terms"]
                ],
            }
            for document in found["documents"]
        ],
        "heaviest": _listed(found["heaviest"]),
        "lightest": _listed(found["lightest"]),
    }


def _listed(terms: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{term['term']} {term['weight']:.2f}" for term in terms)
