"""Learned sparse retrieval without a network for queries (arXiv 2411.04403): terms with weights, in an inverted index.

A query is its terms with their idf; a document is its own terms, weighed, and further ones that training adds.
"""

from anmi.retrieval.sparse.document import LexicalExpansion
from anmi.retrieval.sparse.index import SparseIndex
from anmi.retrieval.sparse.model import inference_free, inverse_document_frequency, load_sparse, sparse_vectors

__all__ = [
    "LexicalExpansion",
    "SparseIndex",
    "inference_free",
    "inverse_document_frequency",
    "load_sparse",
    "sparse_vectors",
]
