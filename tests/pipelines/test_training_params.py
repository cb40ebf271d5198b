"""What is refused before anything is mined: options of training that do not go together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from anmi.errors import AnmiError
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import Recipe
from anmi.training.options import TrainingOptions


def merged(training: dict[str, Any], **options: Any) -> TrainingOptions:
    return merged_options(Recipe(description="A recipe.", training=training), TrainingParams(options=options))


@pytest.mark.parametrize("kind", ["linear", "step", "triggered"])
def test_a_schedule_needs_mixed_sources_and_no_pool(kind: str) -> None:
    assert merged({"curriculum": kind, "sources": "mixed"}).curriculum.kind == kind
    with pytest.raises(AnmiError, match=rf'curriculum "{kind}" says how large .* set `sources: mixed`'):
        merged({"curriculum": kind})


@pytest.mark.parametrize("kind", ["tiers", "learning_progress", "bandit"])
def test_a_window_does_not_go_with_mixed_sources(kind: str) -> None:
    with pytest.raises(AnmiError, match=rf'curriculum "{kind}" chooses among mined negatives'):
        merged({"curriculum": kind, "sources": "mixed"})


def test_the_loss_of_entities_needs_mixed_sources() -> None:
    assert merged({"loss": "entity", "sources": "mixed"}).loss.kind == "entity"
    with pytest.raises(AnmiError, match=r'loss "entity" .* set `sources: mixed`'):
        merged({"loss": "entity"})


def test_what_the_recipe_says_need_not_be_said_again_by_an_override() -> None:
    # A recipe gives the number of negatives that mixed sources ask for, and the sources that a schedule asks for.
    assert merged({}, sources="mixed").negatives == 7
    assert merged({"sources": "mixed"}, curriculum="linear").curriculum.kind == "linear"
    with pytest.raises(AnmiError, match="with mixed sources `negatives` says how many"):
        merged_options(
            Recipe(description="A recipe."),
            TrainingParams.model_construct(options={"sources": "mixed", "negatives": None}),
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"companion": {"retriever": "dense"}}, "both are dense; say companion: {retriever: sparse}"),
        ({"companion": {}, "retriever": "sparse"}, "both are sparse; say companion: {retriever: dense}"),
        ({"companion": {"retriever": "sparse", "labels": 0.5}}, "has no labels of its own"),
        ({"companion": {"retriever": "sparse", "companion": {}}}, "has no companion of its own"),
        ({"companion": {"retreiver": "sparse"}}, 'no option "retreiver": did you mean "retriever"'),
        ({"companion": {"retriever": "sparse"}, "sources": "mixed", "negatives": 1}, "mixed sources interpolate"),
    ],
)
def test_a_companion_that_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises((AnmiError, ValidationError), match=said):
        merged({}, **options)


def test_what_a_companion_reads_has_to_be_mined_as_well() -> None:
    distilled = {"retriever": "sparse", "loss": {"distillation": {"column": "p_relevant"}}}
    assert merged({"companion": distilled}).reads == {"p_relevant"}
    assert merged({}).reads == set()


def test_a_companion_has_the_options_of_the_first_but_for_its_own_and_its_temperature() -> None:
    options = {
        "epochs": 3, "temperature": {"fixed": {"value": 0.05}}, "pseudo_queries": {"kinds": ["cloze"]},
        "companion": {"retriever": "sparse", "batch_size": 8},
    }  # fmt: skip
    found = TrainingOptions(**options)  # type: ignore[arg-type]
    assert found.of_companion == TrainingOptions(
        epochs=3, pseudo_queries={"kinds": ["cloze"]}, retriever="sparse", batch_size=8
    )
    assert found.alone == TrainingOptions(**{k: v for k, v in options.items() if k != "companion"})  # type: ignore[arg-type]


def test_a_masked_language_model_goes_with_a_recipe_that_trains_a_sparse_retriever() -> None:
    found = merged({"retriever": "sparse", "masked_lm": ""}, masked_lm="org/bert")
    assert found.masked_lm == "org/bert"
    with pytest.raises(AnmiError, match=r"recipe=sparse_distilled or retriever=sparse"):
        merged({}, masked_lm="org/bert")
