"""Recipes: what YAML may say, what is said about mistakes, and that shards never change a result."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mined import recipe_book
from tests.selection.conftest import make_block, named, with_lists

from anmi.candidates import Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.pipelines.params import BM25Params
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import Recipe, Runner
from anmi.selection.rows import training_rows
from anmi.training.parts import LearningProgressOptions

FILE = Path(__file__).parents[2] / "conf" / "base" / "recipes.yml"
RECIPES: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["recipes"]
DOCUMENTS = 2000


def recipe_of(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"mine": {"description": "A test.", "steps": named(*steps)} | fields}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_published_recipe_says_where_it_is_from_and_how_to_train(name: str) -> None:
    recipe = recipe_book(RECIPES).get(name)
    assert recipe.source and "loss" in recipe.training


def test_one_that_extends_another_takes_its_steps_setting_by_setting() -> None:
    steps = {"route": {"barred": 0.05}, "top": {"by": "cross"}}
    mine = {"extends": "anmi_labels_only", "steps": steps, "mining": {"bm25": {"k1": 1.2}}}
    found = recipe_book(RECIPES | {"mine": mine}).get("mine")
    base = recipe_book(RECIPES).get("anmi_labels_only")
    assert [item.name for item in found.steps] == [item.name for item in base.steps]
    route, top = found.steps[-2:]
    assert route.params == base.steps[-2].params.model_copy(update={"barred": 0.05})
    assert top.params.by == "cross" and found.mining == {"bm25": {"k1": 1.2}}


def test_the_integrated_recipe_has_what_the_checklist_of_its_report_names() -> None:
    recipe = recipe_book(RECIPES).get("anmi_2_1")
    options = merged_options(recipe, TrainingParams())
    steps = {step.name: step.params for step in recipe.steps}
    assert steps["max_ratio"].max_ratio == "auto" and steps["mixture"].per == "dev"
    assert options.loss.kind == "debiased" and options.loss.learned
    assert options.curriculum == LearningProgressOptions(window="elo")
    assert options.temperature.kind == "learnable" and recipe.pool == 50


def test_steps_that_are_added_take_a_place_and_a_list_may_have_one_twice() -> None:
    """The report's minimal recipe from one that has none of its steps, as `--params` adds them."""
    steps = {
        "denoise": {"column": "p_cross", "threshold": 0.5, "before": "top"},
        "max_ratio": {"column": "dense", "max_ratio": 0.95, "before": "top"},
    }
    mine = {"extends": "naive_top", "steps": steps}
    minimal = recipe_book(RECIPES).get("anmi_2_1_minimal")
    assert recipe_book(RECIPES | {"mine": mine}).get("mine").steps == minimal.steps
    ratios = [{"max_ratio": {"column": name}} for name in ("dense", "cross")]
    listed = recipe_book(RECIPES | {"mine": mine | {"steps": [*ratios, "top"]}}).get("mine")
    assert [item.params.column for item in listed.steps[:2]] == ["dense", "cross"]
    assert listed.steps[2].name == "top" and len(listed.steps) == 3


def test_what_a_recipe_says_of_mining_stands_in_the_place_of_the_parameters() -> None:
    found = recipe_book(RECIPES).get("bm25_random").settings("bm25", BM25Params(k1=3.0, depth=9))
    assert found == BM25Params(k1=3.0, depth=1000)
    unchanged = BM25Params(k1=3.0)
    assert recipe_book(RECIPES).get("anmi").settings("bm25", unchanged) is unchanged


@pytest.mark.parametrize(
    ("name", "step"), {"anmi": "route", "anmi_2_1": "denoise", "anmi_2_0": "elo_gap"}.items()
)
def test_an_audit_shows_the_step_that_goes_by_a_probability_else_the_last(
    name: str, step: str
) -> None:
    main_step = recipe_book(RECIPES).get(name).main_step
    assert main_step is not None and main_step.name == step


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(AnmiError, match='"anmi_21"; did you mean "anmi_2_1"'):
        recipe_book(RECIPES).get("anmi_21")


def one_step(name: str, **params: Any) -> dict[str, Any]:
    return recipe_of({name: params})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (one_step("max_ration"), 'no step "max_ration"; did you mean "max_ratio"'),
        (one_step("max_ratio", ratio=0.9), '"max_ratio" has no parameter "ratio"; did you mean'),
        (recipe_of({"top": "dense"}), "\"top\" are .*'dense'"),
        (one_step("denoise", threshold=0), 'mine.steps": step "denoise", threshold: .*than 0'),
        (recipe_of("random", {"margin": {"margin": "wide"}}), '"margin", margin: .*number'),
        (one_step("source", source="web"), 'step "source", source: .*bm25'),
        (one_step("source"), 'step "source", source: .*required'),
        ({"mine": {"description": "A test.", "steps": "top"}}, "steps are names"),
        ({"mine": {"description": "A test.", "steps": [{}]}}, "a list of steps"),
        (recipe_of({"denoise": {"before": "tap"}}, "top"), 'before "tap".*did you mean "top"'),
        (one_step("max_ratio", max_ratio="bald"), 'no preset "bald"; did you mean "bold"'),
        (one_step("max_ratio", column="elo", adaptive=True), 'cosines of 0.7 and 0.9.*"elo"'),
        (one_step("rank_window", first=101), "first 101 lies behind last 100"),
        (one_step("shift", skip=100), "skip 100 passes over every rank"),
        (one_step("mixture", family="beta", components=3), "leave out components"),
        (recipe_of("random", negatives=-1), 'mine.negatives": .*equal to 0'),
        (recipe_of("random", step=[]), 'no "step"; did you mean "steps"'),
        (recipe_of("random", pool=3), "pool of 3 cannot give 7"),
        ({"mine": "random"}, 'mine": settings by name were expected'),
        ({"mine": {"steps": {}}}, 'mine.description": .*required'),
        ({"bm25": recipe_of("random")["mine"]}, "bm25: results use"),
        (recipe_of("random", "top"), 'mine: steps 1 "random" and 2 "top" both draw'),
        (recipe_of("confidence"), "draws its 7 negatives; .*draw, random, simans, top"),
        (recipe_of("random", "margin"), '"margin" comes after "random".*`before: random`'),
        (recipe_of("margin", {"top": {"by": "hardness"}}), 'step 2, "top", .*"mixture" makes'),
        (one_step("top", by="zone_preference"), 'step 1, .*"zone_weight" makes'),
        (one_step("top", first="preferred"), '"elo_window" makes'),
    ],
)
def test_a_mistake_is_named_in_one_line(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(AnmiError, match=message) as caught:
        recipe_book(raw)
    assert str(caught.value).startswith('parameter "recipes') and "\n" not in str(caught.value)


def test_what_a_step_reads_may_be_made_before_it_and_without_negatives_none_need_draw() -> None:
    for steps in (["mixture", "draw"], ["elo_window", {"top": {"first": "preferred"}}]):
        recipe_book(recipe_of(*steps))
    recipe_book(recipe_of("confidence", negatives=0))


def rows_of(recipe: Recipe, blocks: list[Candidates], seed: int = 1) -> pd.DataFrame:
    names = [f"d{i}" for i in range(DOCUMENTS)]
    selected = Runner(recipe, seed).run(CandidateShards.of(blocks))
    queries = {f"q{i}": f"query {i}" for i in range(100)}
    return with_lists(training_rows(selected, names, [f"text of {n}" for n in names], queries))


@pytest.mark.parametrize("name", sorted(RECIPES))
@given(cuts=st.lists(st.integers(0, 30), max_size=4), seed=st.integers(0, 50))
@settings(max_examples=4)
def test_training_rows_are_the_same_however_queries_are_cut_into_shards(
    name: str, cuts: list[int], seed: int
) -> None:
    recipe, block = recipe_book(RECIPES).get(name), make_block(seed, 40, 30)
    edges = [0, *sorted(cuts), len(block)]
    parts = [block.take(slice(a, b)) for a, b in pairwise(edges)]
    pd.testing.assert_frame_equal(rows_of(recipe, parts), rows_of(recipe, [block]))


def test_a_column_that_no_stage_measured_is_named() -> None:
    recipe = recipe_book(recipe_of({"top": {"by": "cross"}})).get("mine")
    with pytest.raises(AnmiError, match="reads cross"):
        rows_of(recipe, [make_block(0)])
