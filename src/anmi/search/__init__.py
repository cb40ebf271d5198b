"""A search holds in one folder what ranks documents, and fuses it."""

from anmi.search.hybrid import Hit, HybridSearch
from anmi.search.parts import Part

__all__ = ["Hit", "HybridSearch", "Part"]
