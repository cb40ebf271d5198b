"""Parameters of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from anmi.errors import AnmiError, nearest
from anmi.selection.recipe import Recipe
from anmi.training.options import TrainingOptions
from anmi.training.options.curricula import WindowOptions, check_sources
from anmi.training.options.estimates import estimate_tau_plus


class TrainingParams(BaseModel):
    """What is trained, and what of the recipe's settings is overridden."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: dict[str, Any] = Field(
        default_factory=dict, description="Options that win over the recipe's, such as `training.options.epochs=3`."
    )
    refit: bool = Field(
        True,
        # Mining reads the value as it is given.
        strict=True,
        description="Train again from the start on train and dev, for the epochs that dev chose in a first pass on "
        "train alone. On: dev has up to a sixth of the labels, as on SciFact, where they are worth 0.04 nDCG@10 on "
        "test. It doubles the time of training, and mines dev queries, too.",
    )
    dev_documents: int = Field(
        20_000, ge=1, description="Documents searched when an epoch is measured on dev; the positives are among them."
    )

    dev_loss_steps: int | None = Field(
        None,
        ge=1,
        description="Measure the loss on the dev queries after every so many steps, to see how fast a recipe learns, "
        "and log it. None: it takes a second or two each time and changes nothing of the training.",
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
            # How many negatives a row brings the recipe says, if nothing else.
            TrainingOptions(**{"negatives": 1, **value})
        except ValidationError as error:
            raise ValueError(_sentence(error)) from error
        return value


def merged_options(recipe: Recipe, params: TrainingParams) -> TrainingOptions:
    """Return the training options of a recipe under the overrides of a run.

    Raises
    ------
    AnmiError
        An option that does not exist or has a wrong value, a curriculum with no pool to choose from, or a curriculum or
        loss that does not go with where negatives come from.
    """
    try:
        options = TrainingOptions(**{"negatives": recipe.negatives, **recipe.training, **params.options})
    except ValidationError as error:
        raise AnmiError(f"training: {_sentence(error)}") from error
    # Here, since options may name it for a recipe that says what is trained.
    if options.retriever == "dense" and options.masked_lm is not None:
        raise AnmiError(
            "training: masked_lm gives documents of a sparse retriever their terms, and a dense one starts from "
            "`encoder`; take recipe=sparse_distilled or retriever=sparse, or leave out masked_lm"
        )
    if options.context_encoder is not None and options.encoders != "two":
        raise AnmiError(
            "training: context_encoder names where the second of two encoders starts, and there is one; add encoders: "
            "two, or leave it out"
        )
    if options.companion is not None and options.of_companion.retriever == (kind := options.retriever):
        raise AnmiError(
            f"training: a companion is of the other kind, and both are {kind}; say companion: {{retriever: "
            f"{'sparse' if kind == 'dense' else 'dense'}}}"
        )
    if options.labels == 0 and not options.pseudo_queries.kinds:
        raise AnmiError(
            "training: labels 0 leaves nothing to train on; name kinds of pseudo-queries, such as "
            "`pseudo_queries: {kinds: [cloze]}`, or use some labels"
        )
    mixed = options.sources.kind == "mixed"
    check_sources(options.curriculum, mixed=mixed)
    if options.loss.kind == "entity" and not mixed:
        raise AnmiError(
            'training: loss "entity" learns which entity a query is about, which is known where negatives come from '
            "what documents state; set `sources: mixed`, or choose another loss"
        )
    pool = recipe.pool or recipe.negatives
    by_window = isinstance(options.curriculum, WindowOptions)
    if by_window and (options.negatives is None or pool <= options.negatives):
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
    said = str(first["msg"]).removeprefix("Value error, ")
    # What options do not allow together is about none of them alone.
    return f'option "{name}": {said}' if name else said
