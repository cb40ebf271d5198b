"""A search holds in one folder what ranks documents: BM25, networks, trained retrievers, and all of them together."""

from anmi.search.hybrid import Hit, HybridSearch
from anmi.search.parts import Part

__all__ = ["Hit", "HybridSearch", "Part"]
