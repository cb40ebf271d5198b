"""Recipes that extend others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anmi.errors import nearest


def inherited(recipes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipes with the fields of those that they extend.

    A recipe's own fields win; ``steps`` is replaced as a whole, ``training`` is merged key by key, ``mining`` setting
    by setting.

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
    theirs, ours = base.get("mining"), own.get("mining")
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        merged["mining"] = under(ours, theirs)
    return merged


def under(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with defaults put under them, branch by branch.

    Examples
    --------
    >>> under({"bm25": {"b": 0.4}}, {"bm25": {"k1": 1.5, "b": 0.75}, "elo": {"depth": 50}})
    {'bm25': {'k1': 1.5, 'b': 0.4}, 'elo': {'depth': 50}}
    """
    both = {**defaults, **given}
    inner = {name for name in defaults.keys() & given.keys() if isinstance(given[name], Mapping)}
    return {
        name: under(value, defaults[name]) if name in inner and isinstance(defaults[name], Mapping) else value
        for name, value in both.items()
    }


def with_mining(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the settings of mining that their recipe states put under what is set.

    What is no valid recipe is left as it is; whoever validates recipes says what is wrong with it.

    Parameters
    ----------
    parameters
        All of a run, as read: ``recipe``, ``recipes``, and the stages of mining as far as anything of them is set.
    """
    recipes, chosen = parameters.get("recipes"), parameters.get("recipe")
    if not isinstance(recipes, Mapping) or not isinstance(chosen, str) or chosen not in recipes:
        return dict(parameters)
    try:
        recipe = _resolved(chosen, recipes, ())
    except ValueError:
        return dict(parameters)
    stated = recipe.get("mining") if isinstance(recipe, Mapping) else None
    if not isinstance(stated, Mapping):
        return dict(parameters)
    known = {name: value for name, value in stated.items() if isinstance(parameters.get(name), Mapping)}
    return under(parameters, {name: value for name, value in known.items() if isinstance(value, Mapping)})
