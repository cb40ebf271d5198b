"""A validation loss that means the same whatever a model was trained with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import issparse

from anmi.candidates import PADDING
from anmi.corpus.texts import document_texts
from anmi.evaluation.retrieval import DevPool, dev_pool, side_by_side, vectors
from anmi.retrieval.index import Vectors, row_products
from anmi.retrieval.pool import own_documents
from anmi.retrieval.related import RelatedDocuments

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# The same for every model and recipe, not the one trained with: with its own, a recipe that learns its temperature, or
# was given another, would change the unit of its loss, and no two could be compared. At 0.05 a document that is 0.05
# less similar counts for 1/e.
_TEMPERATURE: Final = 0.05
# Similarities held in memory at once, 4 bytes each.
_MOST_VALUES: Final = 1 << 22

Barred = Callable[[NDArray[np.int32]], sparse.csr_array]


def dev_loss(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    barred: Barred | None,
    most_documents: int,
    precision: str,
    seed: int,
    *,
    most_queries: int | None = None,
    related: RelatedDocuments | None = None,
) -> Callable[[SentenceTransformer], float] | None:
    """Return a function that gives a model's mean loss on the dev queries; None when there are none.

    For a query and a document of its own it is −log softmax of the document's cosine divided by the temperature, or of
    a sparse retriever's score, among the own document and all documents of the pool that are not barred: the
    contrastive loss (van den Oord et al.,
    arXiv 1807.03748) with the pool for negatives. It is 0 for a model that tells everything apart and about log N, in
    nats, for one that tells nothing apart among N documents.

    Parameters
    ----------
    corpus, queries, qrels
        The collection.
    barred
        Given the dev queries' relevant documents, int32 [Q, P] padded with -1, which documents are no negatives of a
        query, bool [Q, D], such as :meth:`anmi.corpus.knowledge.KnowledgeGraph.entailing`. None bars none.
        The relevant ones, and a document that is the query itself, are barred in any case.
    most_documents, most_queries, seed
        See :func:`anmi.evaluation.retrieval.dev_pool`, which the dev metric is measured on, too.
    precision
        Of encoding.
    related
        Copies, near-duplicates and siblings of documents, which are barred as well.

    Returns
    -------
    Callable or None
        From a model to the mean over queries, in nats; a query with several relevant documents is their mean.
    """
    pool = dev_pool(corpus, queries, qrels, most_documents, seed, most_queries)
    if pool is None:
        return None
    texts, asked = document_texts(pool.documents), pool.queries.text.tolist()
    query, place = _own(pool)
    masked = _masked(pool, query, place, corpus, barred, related or RelatedDocuments.of_none(len(corpus)))

    def measure(model: SentenceTransformer) -> float:
        found = vectors(model, asked, "query", precision=precision)
        documents = vectors(model, texts, "document", precision=precision)
        # As training compares them: inner products of terms have no temperature.
        temperature = 1.0 if issparse(documents) else _TEMPERATURE
        return mean_loss(found, documents, query, place, masked, temperature)

    return measure


def mean_loss(
    queries: Vectors,
    documents: Vectors,
    query: NDArray[np.int64],
    place: NDArray[np.int64],
    masked: sparse.csr_array,
    temperature: float,
) -> float:
    """Return the mean over queries of −log softmax of their own documents' similarity.

    Examples
    --------
    >>> vectors = np.eye(3, dtype=np.float32)
    >>> own = np.arange(3)
    >>> masked = sparse.csr_array(np.eye(3, dtype=bool))
    >>> round(mean_loss(vectors, vectors, own, own, masked, 1.0), 4)  # log(1 + 2 / e)
    0.5514
    """
    asked, pool = queries.shape[0], documents.shape[0]
    others = np.empty(asked, np.float64)
    own = row_products(queries[query], documents[place]) / temperature
    # A matrix product of a block of queries; the pool itself bounds how wide it is.
    block = max(1, _MOST_VALUES // max(pool, 1))
    for start in range(0, asked, block):
        product = queries[start : start + block] / np.float32(temperature) @ documents.T
        part = product if isinstance(product, np.ndarray) else product.toarray()
        left, right = masked.indptr[start], masked.indptr[start + len(part)]
        row = np.repeat(np.arange(len(part)), np.diff(masked.indptr[start : start + len(part) + 1]))
        part[row, masked.indices[left:right]] = -np.inf
        # Never overflows, and what it lets vanish is below e⁻⁸⁰ of the largest.
        highest = part.max(axis=1, keepdims=True)
        highest[~np.isfinite(highest)] = 0.0
        part -= highest
        np.exp(part, out=part)
        with np.errstate(divide="ignore"):
            others[start : start + len(part)] = np.log(part.sum(axis=1, dtype=np.float64)) + highest[:, 0]
    losses = np.logaddexp(0.0, others[query] - own)
    total, count = np.bincount(query, losses, asked), np.bincount(query, minlength=asked)
    return float((total / count).mean())


def _own(pool: DevPool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of a query and of a relevant document in the pool, pair by pair."""
    query = pd.Index(pool.queries.query_id).get_indexer(pd.Index(pool.truth.query_id))
    place = pd.Index(pool.documents.document_id).get_indexer(pd.Index(pool.truth.document_id))
    return query.astype(np.int64), place.astype(np.int64)


def _masked(
    pool: DevPool,
    query: NDArray[np.int64],
    place: NDArray[np.int64],
    corpus: pd.DataFrame,
    barred: Barred | None,
    related: RelatedDocuments,
) -> sparse.csr_array:
    rows = pd.Index(corpus.document_id).get_indexer(pd.Index(pool.documents.document_id))
    positives = side_by_side(query, rows[place], len(pool.queries))
    own = own_documents(pool.queries, dict(zip(corpus.document_id, range(len(corpus)), strict=True)))
    documents = related.barred(positives, own[:, None])
    row, slot = np.nonzero(documents != PADDING)
    pairs = (np.ones(len(row), np.int32), (row, documents[row, slot]))
    masked = sparse.csr_array(pairs, (len(pool.queries), len(corpus)))
    if barred is not None:
        masked = masked + barred(positives).astype(np.int32)
    result = sparse.csr_array(masked[:, rows] > 0)
    result.sort_indices()
    return result
