"""Parameters of selection: the recipes themselves."""

from __future__ import annotations

from anmi.selection.recipe import Recipe, RecipeBook

__all__ = ["Recipe", "RecipeBook"]
