"""What the steps of a recipe fitted, as JSON and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np


def plain_fit(found: Any) -> Any:
    """Return what a step fitted as numbers, lists and mappings of these.

    Examples
    --------
    >>> plain_fit(0.5)
    0.5
    """
    if found is None or isinstance(found, float):
        return found
    return {name: np.asarray(value).tolist() for name, value in asdict(found).items()}


def fit_from(kind: type, found: Any) -> Any:
    """Return what :func:`plain_fit` was made of.

    Parameters
    ----------
    kind
        Its type.
    found
        What was made.

    Examples
    --------
    >>> fit_from(float, 0.5)
    0.5
    """
    if found is None or kind is float:
        return found
    return kind(**{name: np.array(value) if isinstance(value, list) else value for name, value in found.items()})
