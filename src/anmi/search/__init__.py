"""The trained systems as a user's search: BM25, the encoder, and both, in one folder."""

from anmi.search.hybrid import SYSTEMS, Hit, HybridSearch

__all__ = ["SYSTEMS", "Hit", "HybridSearch"]
