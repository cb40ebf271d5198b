"""What can be known of a recipe before it runs: that its steps cannot do together what they are for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from anmi.selection.steps import STEPS

if TYPE_CHECKING:
    from anmi.selection.recipe import Recipe, Step


def contradiction(recipe: Recipe) -> str | None:
    """Return the first contradiction in a recipe as a sentence, or None.

    Looked for are: no step, or several, that draw negatives; a pool smaller than what is drawn from it; a step behind
    the one that draws; a column read before the step that makes it; windows of ranks or of Elo gaps that no candidate
    can be inside of together; and a bar on weights that none can pass.
    """
    checks = (_sampling(recipe), _order(recipe.steps), _ranks(recipe.steps), _gaps(recipe.steps), _bar(recipe.steps))
    return next((found for found in checks if found is not None), None)


def _sampling(recipe: Recipe) -> str | None:
    drawing = [place for place, item in enumerate(recipe.steps) if item.type.sampler]
    if len(drawing) > 1:
        first, second = (recipe.steps[place].name for place in drawing[:2])
        return f'steps {drawing[0] + 1} "{first}" and {drawing[1] + 1} "{second}" both draw the negatives; keep one'
    if not drawing and recipe.negatives:
        samplers = ", ".join(sorted(name for name, kind in STEPS.items() if kind.sampler))
        return f"no step draws its {recipe.negatives} negatives; end the steps with one of {samplers}"
    if recipe.pool is not None and recipe.pool < recipe.negatives:
        return f"a pool of {recipe.pool} cannot give {recipe.negatives} negatives a step; enlarge it, or leave it out"
    if drawing and drawing[0] + 1 < len(recipe.steps):
        late = recipe.steps[drawing[0] + 1].name
        sampler = recipe.steps[drawing[0]].name
        return f'step "{late}" stands behind "{sampler}", which draws the negatives, so it decides nothing; move it up'
    return None


def _order(steps: Sequence[Step]) -> str | None:
    makers = {column: name for name, kind in STEPS.items() for column in kind.makes}
    made: set[str] = set()
    for place, item in enumerate(steps):
        for column in sorted(item.type.requires(item.params) - made):
            if column in makers:
                return (
                    f'step {place + 1}, "{item.name}", reads {column}, which "{makers[column]}" makes; '
                    "put that step before it"
                )
        made.update(item.type.makes)
    return None


def _ranks(steps: Sequence[Step]) -> str | None:
    """Windows of one ranking that do not meet."""
    known: dict[str, tuple[float, float]] = {}
    for item in steps:
        if item.name not in ("rank_window", "shift"):
            continue
        params = item.params
        first = params.first if item.name == "rank_window" else params.skip + 1
        low, high = known.get(params.column, (1.0, math.inf))
        low, high = max(low, first), min(high, params.last)
        if low > high:
            return f"no {params.column} is from {low:g} on and up to {high:g}; widen one of the windows"
        known[params.column] = low, high
    return None


def _gaps(steps: Sequence[Step]) -> str | None:
    """Windows of Elo gaps that do not meet, such as one inside the danger zone."""
    low, high = -math.inf, math.inf
    for item in steps:
        for least, most in _elo_windows(item):
            low, high = max(low, least), min(high, most)
            if low >= high:
                return (
                    f'with step "{item.name}" only Elo gaps from {low:g} on and up to {high:g} would be left, which '
                    "are none; narrow the danger zone or move the window"
                )
    return None


def _elo_windows(item: Step) -> Iterator[tuple[float, float]]:
    # By interval, more than an even chance of danger lets gaps below the danger pass.
    if item.name == "elo_gap" and (item.params.max_probability or 0) <= 0.5:
        yield item.params.danger, math.inf
    elif item.name == "elo_window" and item.params.mode == "reject":
        yield item.params.window


def _bar(steps: Sequence[Step]) -> str | None:
    """A bar on weights above all weights that the zones give."""
    most = 1.0
    for item in steps:
        if item.name == "zone_weight":
            most *= max(item.params.weights)
        if item.name == "min_weight" and item.params.weight >= most:
            return f"min_weight {item.params.weight:g} rejects every candidate, as zone_weight gives {most:g} at most"
    return None
