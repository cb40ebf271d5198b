"""What a recipe takes from the one it extends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kedro.config import OmegaConfigLoader

from anmi.errors import AnmiError
from anmi.selection.recipe import RecipeBook, recipe_book
from anmi.settings import CONFIG_LOADER_ARGS

BASE: dict[str, Any] = {
    "description": "Base.",
    "source": "A paper.",
    "negatives": 5,
    "steps": ["margin", "random"],
    "training": {"loss": "infonce", "temperature": 0.1},
}


def test_own_fields_win_steps_are_replaced_and_training_is_merged() -> None:
    book = recipe_book({
        "child": {
            "extends": "base", "description": "Child.", "steps": ["top"], "training": {"temperature": 0.3, "epochs": 2}
        },
        "base": BASE,
    })  # fmt: skip
    child, base = book.get("child"), book.get("base")
    assert (child.description, child.source, child.negatives, child.extends) == ("Child.", "A paper.", 5, "base")
    assert [item.name for item in child.steps] == ["top"]
    assert child.training == {"loss": "infonce", "temperature": 0.3, "epochs": 2}
    assert [item.name for item in base.steps] == ["margin", "random"] and base.training == BASE["training"]


def test_mining_is_merged_setting_by_setting() -> None:
    mining = {"bm25": {"k1": 1.5, "b": 0.75}, "elo": {"depth": 50}}
    book = recipe_book({
        "base": {**BASE, "mining": mining}, "child": {"extends": "base", "mining": {"bm25": {"b": 0.4}}}
    })  # fmt: skip
    assert book.get("child").mining == {"bm25": {"k1": 1.5, "b": 0.4}, "elo": {"depth": 50}}
    with pytest.raises(AnmiError, match='"bm52" is no stage of mining with settings; did you mean "bm25"'):
        recipe_book({"mine": {**BASE, "mining": {"bm52": {"k1": 1}}}})


def test_heirs_of_heirs_and_heirs_that_change_nothing() -> None:
    book = recipe_book({
        "c": {"extends": "b", "negatives": 1},
        "b": {"extends": "a", "training": {"epochs": 3}},
        "a": BASE,
    })  # fmt: skip
    assert book.get("c").training == {"loss": "infonce", "temperature": 0.1, "epochs": 3}
    assert book.get("c").steps == book.get("a").steps and book.get("c").negatives == 1


def test_kedro_validates_the_same_way_and_again_what_is_valid() -> None:
    book = RecipeBook.model_validate({"a": BASE, "b": {"extends": "a", "negatives": 2}})
    assert RecipeBook.model_validate(book).get("b").negatives == 2


def test_a_recipe_in_conf_local_extends_a_published_one(tmp_path: Path) -> None:
    for folder, text in {
        "base": "recipes: {base: {description: Base., steps: [margin, random]}}",
        "local": "recipes: {mine: {extends: base, negatives: 3}}",
    }.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "parameters_recipes.yml").write_text(text, encoding="utf-8")
    arguments: dict[str, Any] = {**CONFIG_LOADER_ARGS, "conf_source": str(tmp_path)}
    book = recipe_book(OmegaConfigLoader(**arguments)["parameters"]["recipes"])
    assert book.names() == ["base", "mine"]
    assert [item.name for item in book.get("mine").steps] == ["margin", "random"] and book.get("mine").negatives == 3


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"a": {"extends": "bse"}, "base": BASE}, 'a: extends "bse", which is no recipe; did you mean "base"'),
        ({"a": {"extends": "a"}}, r"a: extends goes in a circle \(a → a\)"),
        ({"a": {"extends": "b"}, "b": {"extends": "c"}, "c": {"extends": "b"}}, r"circle \(a → b → c → b\)"),
        ({"a": {"extends": "b"}, "b": "random"}, 'a: extends "b", which has no fields to take'),
        ({"a": {"extends": "b", "step": []}, "b": BASE}, 'a recipe has no "step"; did you mean "steps"'),
        ({"a": {"extends": "b", "training": 3}, "b": BASE}, "a → training: .*dictionary"),
        ({"a": {"extends": "b", "steps": ["margin"]}, "b": BASE}, "a: no step draws its 5 negatives"),
    ],
)
def test_what_cannot_be_inherited_is_refused_in_one_sentence(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(AnmiError, match=message) as caught:
        recipe_book(raw)
    assert str(caught.value).startswith("recipe ") and "\n" not in str(caught.value)
