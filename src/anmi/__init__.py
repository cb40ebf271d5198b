"""ANMI: hard and clean negatives for training retrievers.

``from anmi import mine_hard_negatives, audit_negatives`` works in any script, without Kedro.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anmi.api import audit_negatives, mine_hard_negatives

__version__ = "0.1.0"
__all__ = ["audit_negatives", "mine_hard_negatives"]


def __getattr__(name: str) -> Any:
    """Import a function only when it is asked for, since what it needs takes a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from anmi import api

    return getattr(api, name)
