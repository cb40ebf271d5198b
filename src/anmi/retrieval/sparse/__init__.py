"""Learned sparse retrieval needs no network for queries (arXiv 2411.04403): weighted terms in an inverted index.

A query is its terms with their idf; a document is its own terms, weighed, and further ones that training adds.
Searching needs no PyTorch: the modules that do, ``model`` and ``document``, are not imported here.
"""

from anmi.retrieval.sparse.index import SparseIndex, TermTable, term_table

__all__ = ["SparseIndex", "TermTable", "term_table"]
