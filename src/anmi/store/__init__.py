"""The store keeps what was computed for a text, so that it is never computed again."""

from anmi.store.cache import Number, Run, Store, reasons

__all__ = ["Number", "Run", "Store", "reasons"]
