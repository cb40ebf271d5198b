"""The registry of steps: what a kind of step is, and the decorator that registers one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from anmi.candidates import Candidates


class Params(BaseModel):
    """Base of the parameters of a step."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Context:
    """What a step may know besides the block.

    Attributes
    ----------
    seed
        Of the run; draws are keyed by it, the query and the step.
    negatives
        Negatives wanted per row: the recipe's pool, or without one what a step of training takes.
    fitted
        What the step's own ``fit`` returned; None for steps without one.
    """

    seed: int
    negatives: int
    fitted: Any = None


Apply = Callable[[Candidates, Any, Context], Candidates]
Fit = Callable[[Iterable[Candidates], Any, Context], Any]


@dataclass(frozen=True)
class StepType:
    """A kind of step.

    Its parameters, the columns it reads, what it does to a block, the parameters by which it trades false
    negatives against hardness, the columns it makes for
    later steps, and whether it draws the negatives.
    """

    name: str
    params: type[Params]
    apply: Apply
    requires: Callable[[Any], set[str]]
    fit: Fit | None = None
    thresholds: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    sampler: bool = False


STEPS: Final[dict[str, StepType]] = {}


def step(
    name: str,
    params: type[Params],
    requires: Callable[[Any], set[str]] = lambda p: set(),
    fit: Fit | None = None,
    thresholds: tuple[str, ...] = (),
    makes: tuple[str, ...] = (),
    sampler: bool = False,
) -> Callable[[Apply], Apply]:
    """Register a function as the step ``name``."""

    def register(apply: Apply) -> Apply:
        STEPS[name] = StepType(name, params, apply, requires, fit, thresholds, makes, sampler)
        return apply

    return register
