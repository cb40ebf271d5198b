"""A search holds what a run trained in one folder: BM25, the retrievers, and all of them together."""

from anmi.search.hybrid import SYSTEMS, Hit, HybridSearch

__all__ = ["SYSTEMS", "Hit", "HybridSearch"]
