"""Learned sparse retrieval without a network for queries (arXiv 2411.04403): weighted terms.

A query is its terms with their idf; a document is its own terms, weighed, and further ones that
training adds. Searching needs no PyTorch: the modules here do, and :mod:`anmi.retrieval.index` does
not.
"""
