"""What the steps of a recipe fitted, as JSON and back."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np


def plain_fit(found: Any) -> Any:
    """Return what a step fitted as numbers, lists and mappings of these; JSON has no infinity, so that is a text.

    Parameters
    ----------
    found
        A number, a dataclass of numbers and arrays, or None.

    Examples
    --------
    >>> plain_fit(0.5), plain_fit(math.inf)
    (0.5, 'inf')
    """
    if found is None or isinstance(found, (int, float)):
        return _plain(found)
    return {name: _plain(np.asarray(value).tolist()) for name, value in asdict(found).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
    >>> fit_from(float, "inf")
    inf
    """
    if found is None:
        return None
    if kind is float:
        return float(found)
    return kind(**{name: _number(value) for name, value in found.items()})


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return np.array([_number(item) for item in value])
    return float(value) if isinstance(value, str) else value
