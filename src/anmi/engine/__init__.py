"""Where work on many items is done: a function and its items in, results as they are finished out."""

from anmi.engine.base import Engine, Failure, Outcome
from anmi.engine.local import LocalEngine

__all__ = ["Engine", "Failure", "LocalEngine", "Outcome"]
