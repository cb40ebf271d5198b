"""What losses check of their parameters."""

from __future__ import annotations


def checked_share(name: str, value: float) -> float:
    """Return a share, or raise a ValueError if it lies outside [0, 1].

    Examples
    --------
    >>> checked_share("alpha", 0.6)
    0.6
    """
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} {value} lies outside [0, 1]")
    return value
