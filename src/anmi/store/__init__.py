"""Content-addressed cache: what was computed once for a text is never computed again."""

from anmi.store.cache import Store, digest

__all__ = ["Store", "digest"]
