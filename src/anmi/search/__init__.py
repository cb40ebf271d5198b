"""The trained systems as a user's search: BM25, the encoder, and both, in one folder."""

from anmi.search.hits import Hit
from anmi.search.hybrid import SYSTEMS, HybridSearch

__all__ = ["SYSTEMS", "Hit", "HybridSearch"]
