"""Content-addressed cache: what was computed once for a text is never computed again."""

from anmi.fingerprint import digest
from anmi.store.cache import Number, Store, reasons

__all__ = ["Number", "Store", "digest", "reasons"]
