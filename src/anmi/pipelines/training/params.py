"""Parameters of training."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anmi.errors import AnmiError
from anmi.selection.recipe import Recipe
from anmi.training.options import TrainingOptions


class TrainingParams(BaseModel):
    """What is trained, and what of the recipe's settings is overridden."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: dict[str, Any] = Field(
        default_factory=dict, description="Options that win over the recipe's, such as `training.options.epochs=3`."
    )
    dev_documents: int = Field(
        20_000, ge=1, description="Documents searched when an epoch is measured on dev; the positives are among them."
    )


def merged_options(recipe: Recipe, params: TrainingParams) -> TrainingOptions:
    """Return the training options of a recipe under the overrides of a run.

    Raises
    ------
    AnmiError
        An option that does not exist or has a wrong value.
    """
    try:
        return TrainingOptions(**{"negatives": recipe.negatives, **recipe.training, **params.options})
    except ValidationError as error:
        first = error.errors()[0]
        raise AnmiError(f"training option {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
