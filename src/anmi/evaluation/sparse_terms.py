"""What a sparse retriever finds documents by: their own terms, the further ones, and what terms weigh in queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import scipy.sparse

from anmi import seeds
from anmi.retrieval.sparse import SparseIndex, TermTable

_SAMPLE: Final = 500
_TERMS: Final = 16
_QUERY_TERMS: Final = 12


def sparse_terms(
    index: SparseIndex, table: TermTable, texts: Sequence[str], seed: int, documents: int = 5
) -> dict[str, Any]:
    """Return how many terms documents have, the heaviest of some documents, and those of queries.

    Parameters
    ----------
    index
        Of N documents.
    table
        Weights of queries.
    texts
        Of the N documents, as they were encoded.
    seed
        Of which documents are shown, and which counted: 500 at most.
    documents
        How many to show.

    Returns
    -------
    dict
        ``terms_per_document``; ``further_per_document``, of these the ones that do not stand in the text;
        ``documents``, each with ``document_id, text, terms``, and each term with ``term, weight, further``;
        ``heaviest`` and ``lightest`` of the terms that queries and documents share, with their weight.
    """
    vectors = index.vectors()
    order = np.argsort(seeds.stream(seed, "evaluation/sparse-terms").random(len(texts)), kind="stable")
    chosen = order[:_SAMPLE]
    own = _held(table, [texts[place] for place in chosen])
    found = vectors[chosen]
    further = found - found.multiply(own)
    further.eliminate_zeros()
    shown = [
        {
            "document_id": index.document_ids[place],
            "text": texts[place],
            "terms": _heaviest(table, vectors[place], set(own[row].indices.tolist())),
        }
        for row, place in enumerate(chosen[:documents].tolist())
    ]
    asked = np.flatnonzero((table.weights > 0) & (np.diff(index.postings.indptr) > 0))
    ranked = asked[np.argsort(-table.weights[asked], kind="stable")]
    return {
        "terms_per_document": index.terms_per_document,
        "further_per_document": further.nnz / max(len(chosen), 1),
        "documents": shown,
        "heaviest": _named(table, ranked[:_QUERY_TERMS]),
        "lightest": _named(table, ranked[::-1][:_QUERY_TERMS]),
    }


def _held(table: TermTable, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
    """Return 1 for every token that stands in a text, whatever it weighs in queries."""
    return TermTable(table.tokenizer, np.ones_like(table.weights))(texts)


def _heaviest(table: TermTable, vector: scipy.sparse.csr_matrix, own: set[int]) -> list[dict[str, Any]]:
    # By what they add to a score, which the weight in queries is part of.
    order = np.argsort(-(vector.data * table.weights[vector.indices]), kind="stable")[:_TERMS]
    return [
        {
            "term": table.tokenizer.id_to_token(int(vector.indices[place])),
            "weight": float(vector.data[place]),
            "further": int(vector.indices[place]) not in own,
        }
        for place in order.tolist()
    ]


def _named(table: TermTable, tokens: Any) -> list[dict[str, Any]]:
    return [
        {"term": table.tokenizer.id_to_token(int(token)), "weight": float(table.weights[token])} for token in tokens
    ]
