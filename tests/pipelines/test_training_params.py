"""What is refused before anything is mined: options of training that do not go together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from anmi.errors import AnmiError
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import Recipe
from anmi.training.options import PseudoQueryOptions, TrainingOptions


def merged(training: dict[str, Any], pool: int | None = None, **options: Any) -> TrainingOptions:
    recipe = Recipe(description="A recipe.", training=training, pool=pool)
    return merged_options(recipe, TrainingParams(options=options))


TEACHER = {"distillation": {"column": "teacher"}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            ({"dimensions": value}, "falling numbers of dimensions above 0")
            for value in ([], [64, 128], [64, 64], "64+0")
        ),
        ({"dimensions": [8], "retriever": "sparse"}, "leave out dimensions"),
        ({"adapter": {"rank": 8}, "retriever": "sparse"}, "leave out adapter"),
        ({"adapter": {"rank": 8}, "encoders": "query_only"}, "leave out adapter"),
        ({"encoders": "query_only", "retriever": "sparse"}, "leave out encoders"),
        *(
            ({"curriculum": kind}, rf'curriculum "{kind}" says how large .* set `sources: mixed`')
            for kind in ("linear", "step", "triggered")
        ),
        *(
            (
                {"curriculum": kind, "sources": "mixed"},
                rf'curriculum "{kind}" chooses among mined negatives',
            )
            for kind in ("tiers", "learning_progress", "bandit")
        ),
        (
            {"curriculum": "bandit"},
            r'curriculum "bandit" .* mines 7 a row for 7 to be used; set its `pool`',
        ),
        ({"loss": "entity"}, r'loss "entity" .* set `sources: mixed`'),
        ({"loss": TEACHER}, "candidates above 0, such as 8, go together"),
        ({"pseudo_queries": {"candidates": 8}}, "go together: set both or none"),
        ({"masked_lm": "org/bert"}, r"recipe=sparse_distilled or retriever=sparse"),
        (
            {"companion": {"retriever": "dense"}},
            "both are dense; say companion: {retriever: sparse}",
        ),
        (
            {"companion": {}, "retriever": "sparse"},
            "both are sparse; say companion: {retriever: dense}",
        ),
        ({"companion": {"retriever": "sparse", "labels": 0.5}}, "has no labels of its own"),
        ({"companion": {"retriever": "sparse", "companion": {}}}, "has no companion of its own"),
        ({"companion": {"retreiver": "sparse"}}, 'no option "retreiver": did you mean "retriever"'),
        (
            {"companion": {"retriever": "sparse"}, "sources": "mixed", "negatives": 1},
            "mixed sources interpolate",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises((AnmiError, ValidationError), match=said):
        merged({}, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"curriculum": "linear", "sources": "mixed"},
        {"loss": "entity", "sources": "mixed"},
        {"retriever": "sparse", "masked_lm": "org/bert"},
        {"companion": {"retriever": "sparse"}, "dimensions": "384+64"},
        {"pseudo_queries": {"candidates": 8}, "loss": TEACHER},
        {
            "pseudo_queries": {"candidates": 8},
            "companion": {"retriever": "sparse", "loss": TEACHER},
        },
    ],
)
def test_those_that_do_are_taken(options: dict[str, Any]) -> None:
    # A recipe gives the number of negatives that mixed sources ask for, and the sources that a
    # schedule asks for.
    (first, value), *others = options.items()
    found = merged(dict(others), **{first: value})
    assert found == merged(options) and found.negatives == 7
    assert merged({"curriculum": "bandit"}, pool=8).negatives == 7


def test_a_run_may_override_one_field_of_the_recipe_and_parts_as_a_whole() -> None:
    recipe = {"pseudo_queries": {"kinds": ["cloze"], "candidates": 4}, "loss": TEACHER}
    options = merged(recipe, pseudo_queries={"candidates": 8})
    assert options.pseudo_queries == PseudoQueryOptions(kinds=("cloze",), candidates=8)
    assert merged({"sparsity": {"steps": 9}}, sparsity={"weight": 1}).sparsity.steps == 9
    assert merged({"loss": {"triplet": {"margin": 9}}}, loss="triplet").loss.margin != 9


def test_what_a_companion_reads_has_to_be_mined_as_well() -> None:
    distilled = {"retriever": "sparse", "loss": {"distillation": {"column": "p_relevant"}}}
    assert merged({"companion": distilled}).reads == {"p_relevant"}
    assert merged({}).reads == set()


def test_a_companion_has_the_options_of_the_first_but_for_its_own_and_its_temperature() -> None:
    options = {
        "epochs": 3,
        "temperature": {"fixed": {"value": 0.05}},
        "pseudo_queries": {"kinds": ["cloze"]},
        "companion": {"retriever": "sparse", "batch_size": 8},
    }
    found = TrainingOptions(**options)  # type: ignore[arg-type]
    assert found.of_companion == TrainingOptions(
        epochs=3, pseudo_queries={"kinds": ["cloze"]}, retriever="sparse", batch_size=8
    )
    del options["companion"]
    assert found.alone == TrainingOptions(**options)  # type: ignore[arg-type]
