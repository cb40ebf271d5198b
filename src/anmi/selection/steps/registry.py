"""The registry of steps: what a kind of step is, and the decorator that registers one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from anmi.candidates import Candidates
from anmi.errors import nearest


class Params(BaseModel):
    """Base of the parameters of a step."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def named(
    value: Any,
    models: Mapping[str, type[BaseModel]],
    noun: str = "",
) -> tuple[str, dict[str, Any]]:
    """Read a name, or one name with its parameters, as recipes have them.

    Raises
    ------
    ValueError
        The name or a parameter is not known, with the nearest that is; or the value has another
        form.
    """
    value = {value: {}} if isinstance(value, str) else value
    if not isinstance(value, Mapping) or len(value) != 1:
        example = next(iter(models))
        raise ValueError(
            f"one name with its parameters is expected, such as `{{{example}: {{}}}}`, and not"
            f" {value!r}"
        )
    ((name, params),) = value.items()
    if name not in models:
        raise ValueError(f'there is no {noun}"{name}"; {nearest(str(name), models)}')
    if not isinstance(params := {} if params is None else params, Mapping):
        raise ValueError(
            f'the parameters of {noun}"{name}" are names with values, and not {params!r}'
        )
    fields = models[name].model_fields.keys() - {"kind"}
    if wrong := [str(key) for key in params if key not in fields]:
        hint = nearest(wrong[0], fields) if fields else "it has none"
        raise ValueError(f'{noun}"{name}" has no parameter "{wrong[0]}"; {hint}')
    return str(name), dict(params)


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


def _own_column(params: Any) -> set[str]:
    """Return the ``column`` that parameters name, which is what most steps read."""
    return {params.column} if hasattr(params, "column") else set()


@dataclass(frozen=True)
class StepType:
    """A kind of step.

    Its parameters, what it does to a block, the columns it reads (the ``column`` that its
    parameters name where nothing else is stated), how it is fitted, the parameters by which it
    trades false negatives against hardness, the columns it makes for later steps, and whether it
    draws the negatives.
    """

    name: str
    params: type[Params]
    apply: Apply
    requires: Callable[[Any], set[str]] = _own_column
    fit: Fit | None = None
    thresholds: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    sampler: bool = False


STEPS: Final[dict[str, StepType]] = {}


def step(
    name: str,
    params: type[Params] = Params,
    **kind: Any,
) -> Callable[[Apply], Apply]:
    """Register a function as the step ``name``; ``kind`` are other fields of :class:`StepType`."""

    def register(apply: Apply) -> Apply:
        STEPS[name] = StepType(name, params, apply, **kind)
        return apply

    return register
