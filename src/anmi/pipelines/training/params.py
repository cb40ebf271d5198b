"""Parameters of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from pydantic import Field, ValidationError, field_validator

from anmi.errors import AnmiError
from anmi.pipelines.params import Params, sentence
from anmi.selection.recipe import Recipe
from anmi.training.options import TrainingOptions
from anmi.training.parts import WindowOptions, check_sources

# Options of fixed fields, which a run may override one by one; parts of several kinds it replaces.
_OF_FIXED_FIELDS: Final = ("pseudo_queries", "sparsity")


class TrainingParams(Params):
    """What is trained, and what of the recipe's settings is overridden."""

    options: dict[str, Any] = Field(default_factory=dict)
    dev_documents: int = Field(20_000, ge=1)

    @field_validator("options")
    @classmethod
    def _known(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Fail before mining, not after it."""
        try:
            # How many negatives a row brings the recipe says, if nothing else.
            TrainingOptions(**{"negatives": 1, **value})
        except ValidationError as error:
            raise ValueError(sentence(error, TrainingOptions, "option")) from error
        return value


def overridden(training: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training options of a recipe, as it writes them, under those of a run.

    Examples
    --------
    >>> overridden({"pseudo_queries": {"kinds": ["title"]}}, {"pseudo_queries": {"mixed": True}})
    {'pseudo_queries': {'kinds': ['title'], 'mixed': True}}
    """
    merged = {**training, **options}
    for name in _OF_FIXED_FIELDS:
        if training.get(name) and options.get(name):
            merged[name] = {**training[name], **options[name]}
    return merged


def retrievers_of(options: TrainingOptions) -> list[TrainingOptions]:
    """Return the options of each retriever that is trained: the first, and its companion if any."""
    companions = [] if options.companion is None else [options.of_companion]
    return [options.alone, *companions]


def merged_options(recipe: Recipe, params: TrainingParams) -> TrainingOptions:
    """Return the training options of a recipe under the overrides of a run.

    Raises
    ------
    AnmiError
        An option that does not exist or has a wrong value, a curriculum with no pool to choose
        from, or a curriculum or loss that does not go with where negatives come from.
    """
    merged = {"negatives": recipe.negatives, **overridden(recipe.training, params.options)}
    try:
        options = TrainingOptions(**merged)
    except ValidationError as error:
        raise AnmiError(f"training: {sentence(error, TrainingOptions, 'option')}") from error
    # Here, since a run may override one of two options that go together.
    _check_retrievers(options)
    mixed = options.sources.kind == "mixed"
    check_sources(options.curriculum, mixed=mixed)
    if options.loss.kind == "entity" and not mixed:
        raise AnmiError(
            'training: loss "entity" learns which entity a query is about, which is known where'
            " negatives come from what documents state; set `sources: mixed`, or choose another"
            " loss"
        )
    pool = recipe.pool or recipe.negatives
    by_window = isinstance(options.curriculum, WindowOptions)
    if by_window and (options.negatives is None or pool <= options.negatives):
        raise AnmiError(
            f'training: curriculum "{options.curriculum.kind}" chooses the negatives of a step from'
            f" a larger pool, but the recipe mines {pool} a row for"
            f" {options.negatives or 'all of them'} to be used; set its `pool`, such as"
            f" {min(7 * max(pool, 1), 1000)}"
        )
    return options


def _check_retrievers(options: TrainingOptions) -> None:
    """Refuse retrievers that do not go together, or with what they learn from."""
    retrievers = retrievers_of(options)
    kinds = [retriever.retriever for retriever in retrievers]
    if kinds[0] == "dense" and options.masked_lm is not None:
        raise AnmiError(
            "training: masked_lm gives documents of a sparse retriever their terms, and a dense one"
            " starts from `encoder`; take recipe=sparse_distilled or retriever=sparse, or leave out"
            " masked_lm"
        )
    if len(kinds) > len(set(kinds)):
        raise AnmiError(
            f"training: a companion is of the other kind, and both are {kinds[0]}; say companion:"
            f" {{retriever: {'sparse' if kinds[0] == 'dense' else 'dense'}}}"
        )
    if options.labels == 0 and not options.pseudo_queries.kinds:
        raise AnmiError(
            "training: labels 0 leaves nothing to train on; name kinds of pseudo-queries, such as "
            "`pseudo_queries: {kinds: [cloze]}`, or use some labels"
        )
    learns_teacher = any(retriever.learns_teacher for retriever in retrievers)
    if learns_teacher != (options.pseudo_queries.candidates > 0):
        raise AnmiError(
            "training.options: loss.distillation.column=teacher and pseudo_queries.candidates above"
            " 0, such as 8, go together: set both or none"
        )


def estimate_tau_plus(basis: str, rows: pd.DataFrame, corpus_size: int) -> float:
    """Return the share of positives among what serves as negatives (methods §3.3).

    ``labelled``: labelled positives a query over the size of the corpus. ``judged``: the share of
    the judged mined negatives that are likelier relevant than not.

    Raises
    ------
    AnmiError
        ``judged``, and nobody judged the negatives of these rows; or all of them would be
        positives.

    Examples
    --------
    >>> row = {"query_id": "q", "positive_ids": ["a", "b"], "negative_p_relevant": [0.9, 0.1]}
    >>> table = pd.DataFrame([row])
    >>> estimate_tau_plus("labelled", table, 100), estimate_tau_plus("judged", table, 100)
    (0.02, 0.5)
    """
    if basis == "labelled":
        counts = rows.drop_duplicates("query_id").positive_ids.map(len)
        # Without rows the training says so itself.
        tau_plus = float(counts.mean() / corpus_size) if len(counts) else 0.0
    else:
        judged = np.concatenate([[], *rows.get("negative_p_relevant", ())]).astype(np.float64)
        judged = judged[~np.isnan(judged)]
        if not len(judged):
            raise AnmiError(
                "tau_plus is to be estimated from judgments, and nobody judged the negatives of"
                " these rows: name `p_relevant` under `reads` of the recipe, or choose `tau_plus:"
                " labelled` or a number"
            )
        tau_plus = float((judged > 0.5).mean())
    if not tau_plus < 1.0:
        raise AnmiError(
            f"tau_plus, the share of positives among negatives, was estimated ({basis}) as"
            f" {tau_plus:g} and must be below 1: give it as a number"
        )
    return tau_plus
