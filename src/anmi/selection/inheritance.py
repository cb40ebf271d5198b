"""Recipes that extend others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anmi.errors import nearest


def inherited(recipes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipes with the fields of those that they extend.

    A recipe's own fields win; ``steps`` is replaced as a whole, ``training`` is merged key by key.

    Parameters
    ----------
    recipes
        By name, as read from YAML; what is not a mapping is left for the model to refuse.

    Raises
    ------
    ValueError
        A recipe extends one that does not exist, or itself by way of others.

    Examples
    --------
    >>> base = {"description": "Base.", "negatives": 3, "training": {"loss": "infonce", "temperature": 0.1}}
    >>> inherited({"base": base, "mine": {"extends": "base", "training": {"temperature": 0.2}}})["mine"]["training"]
    {'loss': 'infonce', 'temperature': 0.2}
    """
    return {name: _resolved(name, recipes, ()) for name in recipes}


def _resolved(name: str, recipes: Mapping[str, Any], heirs: tuple[str, ...]) -> Any:
    own = recipes[name]
    if not isinstance(own, Mapping) or own.get("extends") is None:
        return own
    parent, heirs = str(own["extends"]), (*heirs, name)
    if parent in heirs:
        raise ValueError(f"{name}: extends goes in a circle ({' → '.join((*heirs, parent))}); one must stand alone")
    if parent not in recipes:
        raise ValueError(f'{name}: extends "{parent}", which is no recipe; {nearest(parent, recipes)}')
    base = _resolved(parent, recipes, heirs)
    if not isinstance(base, Mapping):
        raise ValueError(f'{name}: extends "{parent}", which has no fields to take')
    merged = {**base, **own}
    theirs, ours = base.get("training"), own.get("training")
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        merged["training"] = {**theirs, **ours}
    return merged
