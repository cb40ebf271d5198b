"""Training rows, as mining writes them, and recipes as YAML has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from anmi.hooks.checks import check_model
from anmi.selection.recipe import RecipeBook
from anmi.training.batch import Row


def mined(
    queries: Sequence[str],
    documents: Sequence[str],
    negatives: int,
    name: str = "q{}",
    **changes: Any,
) -> pd.DataFrame:
    """Return a row for each query: the document of its number is its positive, and those after it are its negatives."""
    others = [
        [(i + j) % len(documents) for j in range(1, negatives + 1)] for i in range(len(queries))
    ]
    return pd.DataFrame(
        [
            {
                "query_id": name.format(i),
                "query": query,
                "query_weight": 1.0,
                "positive_id": f"d{i}",
                "positive": documents[i % len(documents)],
                "positive_ids": [f"d{i}"],
                "weights": [1.0] * negatives,
                "negative_ids": [f"d{j}" for j in others[i]],
                "negatives": [documents[j] for j in others[i]],
                **changes,
            }
            for i, query in enumerate(queries)
        ]
    )


def row(
    query: str, positive: str, negatives: Sequence[str] = (), also: Sequence[str] = (), **more: Any
) -> Row:
    """Return a row whose query has its text for an id, and whose documents have theirs in capitals."""
    ids = [name.upper() for name in negatives]
    return Row(
        **{
            "query_id": query,
            "query": query,
            "positive_id": positive.upper(),
            "positive": positive,
            "negative_ids": tuple(ids),
            "negatives": tuple(negatives),
            "weights": (1.0,) * len(ids),
            "query_weight": 1.0,
            "positive_ids": frozenset({positive.upper(), *also}),
            **more,
        }
    )


def recipe_book(recipes: dict[str, Any]) -> RecipeBook:
    """Recipes as a session checks and reads them."""
    check_model("recipes", {"recipes": recipes}, RecipeBook)
    return RecipeBook(**recipes)
