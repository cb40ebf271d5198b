"""Recipes whose steps cannot do together what they are for are refused before anything runs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.selection.conftest import named

from anmi.errors import AnmiError
from anmi.selection.recipe import recipe_book


def refused(*steps: Any, **fields: Any) -> str:
    with pytest.raises(AnmiError) as caught:
        recipe_book({"mine": {"description": "A test.", "steps": named(*steps)} | fields})
    message = str(caught.value)
    assert message.startswith("recipe mine: ") and "\n" not in message
    return message


def accepted(*steps: Any, **fields: Any) -> None:
    recipe_book({"mine": {"description": "A test.", "steps": named(*steps)} | fields})


def test_exactly_one_step_draws_the_negatives() -> None:
    assert 'steps 1 "random" and 2 "top" both draw the negatives; keep one' in refused("random", "top")
    none = refused("confidence")
    assert "no step draws its 7 negatives" in none and "draw, random, simans, top" in none
    assert "no step draws its 3 negatives" in refused(negatives=3)
    accepted(negatives=0)
    accepted("confidence", negatives=0)


def test_nothing_stands_behind_the_step_that_draws() -> None:
    assert 'step "margin" stands behind "random"' in refused("random", "margin")
    accepted("margin", "random")


@pytest.mark.parametrize(("steps", "message"), [
    ([{"top": {"by": "hardness"}}], 'step 1, "top", reads hardness, which "mixture" makes; put that step before it'),
    (["margin", {"top": {"by": "zone_preference"}}], 'step 2, .*zone_preference, which "zone_weight" makes'),
    ([{"top": {"first": "preferred"}}], 'reads preferred, which "elo_window" makes'),
    (["draw"], 'step 1, "draw", reads hardness'),
])  # fmt: skip
def test_a_column_is_made_before_it_is_read(steps: list[Any], message: str) -> None:
    assert re.search(message, refused(*steps))


def test_a_column_made_by_a_step_before_is_fine() -> None:
    accepted("mixture", "draw")
    accepted("elo_window", {"top": {"first": "preferred"}})
