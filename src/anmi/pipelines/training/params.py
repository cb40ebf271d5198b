"""Parameters of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from anmi.errors import AnmiError, nearest
from anmi.selection.recipe import Recipe
from anmi.training.options import TrainingOptions
from anmi.training.options.estimates import estimate_tau_plus


class TrainingParams(BaseModel):
    """What is trained, and what of the recipe's settings is overridden."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: dict[str, Any] = Field(
        default_factory=dict, description="Options that win over the recipe's, such as `training.options.epochs=3`."
    )
    dev_documents: int = Field(
        20_000, ge=1, description="Documents searched when an epoch is measured on dev; the positives are among them."
    )

    resume: bool = Field(
        True,
        description="Go on from the newest checkpoint of the very same training where a killed run left one. On: the "
        "result is the same, sooner. Off: start anew, and remove its checkpoints.",
    )
    checkpoint: str | None = Field(
        None,
        description="Folder of a checkpoint to go on from; its training may have had another learning rate, length or "
        "use of memory, and nothing else. None: what `resume` finds.",
    )

    @field_validator("checkpoint")
    @classmethod
    def _present(cls, value: str | None) -> str | None:
        """Fail before mining, not after it."""
        if value is not None and not (Path(value) / "manifest.json").is_file():
            raise ValueError(
                f'"{value}" is no checkpoint, which is a folder with a manifest.json, such as '
                "<store>/checkpoints/<training>/step-00000040"
            )
        return value

    @field_validator("options")
    @classmethod
    def _known(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Fail before mining, not after it."""
        try:
            TrainingOptions(**value)
        except ValidationError as error:
            raise ValueError(_sentence(error)) from error
        return value


def merged_options(recipe: Recipe, params: TrainingParams) -> TrainingOptions:
    """Return the training options of a recipe under the overrides of a run.

    Raises
    ------
    AnmiError
        An option that does not exist or has a wrong value, or a curriculum with no pool to choose from.
    """
    try:
        options = TrainingOptions(**{"negatives": recipe.negatives, **recipe.training, **params.options})
    except ValidationError as error:
        raise AnmiError(f"training: {_sentence(error)}") from error
    pool = recipe.pool or recipe.negatives
    if options.curriculum.kind != "none" and (options.negatives is None or pool <= options.negatives):
        raise AnmiError(
            f'training: curriculum "{options.curriculum.kind}" chooses the negatives of a step from a larger pool, but '
            f"the recipe mines {pool} a row for {options.negatives or 'all of them'} to be used; set its `pool`, such "
            f"as {min(7 * max(pool, 1), 1000)}"
        )
    return options


def complete_options(options: TrainingOptions, rows: pd.DataFrame, corpus_size: int) -> TrainingOptions:
    """Return the options with what they leave to be estimated from the training rows.

    Raises
    ------
    AnmiError
        It cannot be estimated from these rows.
    """
    tau_plus = getattr(options.loss, "tau_plus", None)
    if not isinstance(tau_plus, str):
        return options
    value = estimate_tau_plus(tau_plus, rows, corpus_size)
    return options.model_copy(update={"loss": options.loss.model_copy(update={"tau_plus": value})})


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f'there is no option "{name}": {nearest(name, TrainingOptions.model_fields)}'
    return f'option "{name}": {first["msg"].removeprefix("Value error, ")}'
