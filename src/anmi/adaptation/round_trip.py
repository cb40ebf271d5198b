"""The round trip of pseudo-queries: at which rank a search finds their documents."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pandas as pd
from scipy import sparse
from tqdm.auto import tqdm

from anmi.corpus.related import NO_RESULT, result_passages
from anmi.corpus.texts import document_texts
from anmi.ragged import Float64s, Int32s
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.index import Vectors, row_products
from anmi.retrieval.terms import Terms, counted

# Of queries and documents, which bounds memory; no fewer queries than an encoder needs at a time.
_CELLS: Final = 8_000_000
_LEAST_QUERIES: Final = 32


def document_ranks(
    pseudo_queries: pd.DataFrame,
    corpus: pd.DataFrame,
    terms: Terms,
    encoder: Encoder,
    new: Collection[str] = (),
) -> Int32s:
    """Return the rank of each pseudo-query's document in a search by BM25 and an encoder.

    Each pseudo-query looks for its document as training sees it, without what the pseudo-query was
    made of, among all other documents as they are. In its whole document a title or a sentence is
    found by its own words, whatever it asks. Where nothing is taken out of the document
    (``keyphrase``, ``question``, ``llm``) this is the usual search. Copies and other passages of
    the document do not stand before it, nor do new documents. Both scores count the same: they are
    divided by their standard deviations over all documents and added.

    Parameters
    ----------
    pseudo_queries
        P rows of ``text, document_id, positive_text``.
    corpus
        N rows of ``document_id, title, text``.
    terms
        Of the corpus.
    encoder
        As it is before training.
    new
        Ids of documents that training must not see.

    Returns
    -------
    numpy.ndarray
        int32 [P], from 1.
    """
    names = pd.Index(corpus.document_id)
    results = np.where(names.isin(list(new)), NO_RESULT, result_passages(corpus))
    own_results = results[names.get_indexer(pd.Index(pseudo_queries.document_id))]
    documents = encoder.encode(document_texts(corpus), "document", "encoding documents")
    documents_of_terms = terms.saturated.T.tocsr()
    ranks = np.ones(len(pseudo_queries), np.int32)
    step = max(_LEAST_QUERIES, _CELLS // len(names))
    for start in tqdm(
        range(0, len(ranks), step),
        "round trip",
        delay=2,
        disable=None,
    ):
        rows = slice(start, start + step)
        queries = pseudo_queries.text.iloc[rows].tolist()
        positives = pseudo_queries.positive_text.iloc[rows].tolist()
        counts = counted(terms.tokenize(positives), terms.vocabulary, grow=False)
        lead = _lead(terms.queries(queries), documents_of_terms, terms.saturate(counts))
        vectors = encoder.encode(queries, "query")
        lead += _lead(vectors, documents.T, encoder.encode(positives, "document"))
        is_rival = (results != NO_RESULT) & (results != own_results[rows, None])
        ranks[rows] += ((lead > 0) & is_rival).sum(axis=1, dtype=np.int32)
    return ranks


def _lead(queries: Vectors, documents: Vectors, positives: Vectors) -> Float64s:
    """Return by how many standard deviations documents lead positives of the queries, [Q, N]."""
    products = queries @ documents
    scores = products.toarray() if isinstance(products, sparse.spmatrix) else products
    spread = np.maximum(scores.std(axis=1), 1e-6)
    lead: Float64s = (scores - row_products(queries, positives)[:, None]) / spread[:, None]
    return lead
