"""The documentation of the steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from anmi.report.step_docs import END, START, steps_table, updated
from anmi.selection.recipe import recipe_book
from anmi.selection.steps import STEPS

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "selection.md"


def test_the_docs_list_every_registered_step_and_parameter_and_nothing_else() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = text.partition(START)[2].partition(END)[0].strip()
    hint = "run `python -m anmi.report.step_docs docs/selection.md`, or paste:"
    assert listed == steps_table(), f"docs/selection.md lists other steps than are registered; {hint}\n{steps_table()}"


def test_the_table_has_a_row_for_each_step_and_each_parameter() -> None:
    table = steps_table()
    assert sorted(re.findall(r"^\| \*\*`(\w+)`\*\*", table, re.M)) == sorted(STEPS)
    rows = re.findall(r"^\| \| `(\w+)` \|", table, re.M)
    assert len(rows) == sum(len(kind.params.model_fields) for kind in STEPS.values())
    # As many cells in each row: a bar inside a text would cut one in two.
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} == {5}
    assert (
        "| | `threshold` | `0.9` | At or above it a candidate is a positive; 0.9 is RocketQA's. (> 0, ≤ 1) |" in table
    )
    assert "One of `drop`, `downweight`, `keep`. |" in table


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    assert updated(f"a\n{START}\nold\n{END}\nb\n") == f"a\n{START}\n\n{steps_table()}\n\n{END}\nb\n"
    with pytest.raises(ValueError, match="lacks the marks"):
        updated("no marks")


def test_the_recipe_of_the_docs_can_be_run() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    base = yaml.safe_load((ROOT / "conf" / "base" / "recipes.yml").read_text(encoding="utf-8"))["recipes"]
    mine = yaml.safe_load(example)["recipes"]["mine"]
    book = recipe_book(base | {"mine": mine})
    assert len(book.get("mine").steps) == len(mine["steps"])
    # What it extends gives the loss.
    assert book.get("mine").training == {"loss": "infonce", "temperature": {"fixed": {"value": 0.05}}}
