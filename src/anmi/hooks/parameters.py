"""Checks of parameters, the whole configuration at once, before anything of a collection is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kedro.config import AbstractConfigLoader
from kedro.pipeline import Pipeline
from pydantic import BaseModel, ValidationError

from anmi.errors import AnmiError, nearest
from anmi.seeds import is_seed
from anmi.selection.recipe import Step

_RUNTIME_REFERENCE: Final = re.compile(r"\$\{runtime_params:\s*(\w+)")
_LARGEST: Final = 2**63
# Parameters of a single value, which nodes read as they are, and what is expected of them.
_TEXTS: Final = {
    "collection": "a text such as api_docs or beir:DIR",
    "recipe": "the name of a recipe",
    "encoder": "a text such as static, a folder or ORG/NAME",
    "audit_judges_for": 'the name of a recipe, or "*" for all',
}
_SWITCHES: Final = ("force", "reuse")


def configured(loader: AbstractConfigLoader) -> dict[str, Any]:
    """Return the parameters as the files have them, without those of the command line."""
    arguments = {"base_env": loader.base_env, "default_run_env": loader.default_run_env}
    plain = type(loader)(
        conf_source=loader.conf_source,
        env=loader.env,
        config_patterns=loader.config_patterns,
        merge_strategy=loader.merge_strategy,
        runtime_params={},
        custom_resolvers=getattr(loader, "_custom_resolvers", None),
        **arguments,
    )
    return dict(plain["parameters"])


def references(loader: AbstractConfigLoader) -> set[str]:
    """Return the names that the configuration takes through ``${runtime_params:...}``."""
    return {
        name
        for environment in (loader.base_env, loader.env or loader.default_run_env)
        for file in Path(loader.conf_source, environment).glob("**/*.yml")
        for name in _RUNTIME_REFERENCE.findall(file.read_text(encoding="utf-8"))
    }


def check_names(asked: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a runtime parameter that the configuration does not have."""
    known = set(known)
    for name in asked:
        if name not in known:
            raise AnmiError(f'there is no parameter "{name}": {nearest(name, known)}')


def check_read(configured: Iterable[str], pipelines: Mapping[str, Pipeline]) -> None:
    """Refuse a parameter of the configuration that nothing reads; misspelt, it would be of no effect.

    What begins with an underscore is left alone: YAML keeps there what several branches share.
    """
    inputs = {name for pipeline in pipelines.values() for name in pipeline.inputs() if name.startswith("params:")}
    read = {name.removeprefix("params:").split(".")[0] for name in inputs} | {*_TEXTS, *_SWITCHES, "recipes", "seed"}
    for name in configured:
        if name not in read and not str(name).startswith("_"):
            raise AnmiError(f'nothing reads the parameter "{name}" of the configuration: {nearest(str(name), read)}')


def check_shapes(asked: Mapping[str, Any], known: Mapping[str, Any], place: str = "") -> None:
    """Refuse a value on the command line where the configuration has a branch; nothing could merge the two.

    Examples
    --------
    >>> check_shapes({"bm25": {"k1": 1.2}}, {"bm25": {}})
    """
    for name, value in asked.items():
        inner = known.get(name)
        if not isinstance(inner, Mapping):
            continue
        if isinstance(value, Mapping):
            check_shapes(value, inner, f"{place}{name}.")
        elif isinstance(value, list):
            raise AnmiError(f'parameter "{place}{name}": {_branch(place + name, inner)}, not a list')


def _branch(name: str, known: Iterable[str]) -> str:
    return f"settings by name were expected, as in {name}.{next(iter(known), 'NAME')}=VALUE"


def check_values(parameters: Mapping[str, Any]) -> None:
    """Refuse numbers that no parameter can have, and of the parameters without a model what is of a wrong type."""
    for place, value in _leaves(parameters, ""):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and not (math.isfinite(value) if isinstance(value, float) else -_LARGEST <= value < _LARGEST):
            given = value if isinstance(value, float) else "one of more than 64 bits"
            raise AnmiError(
                f'parameter "{place}": a finite number was expected, not {given}; correct it or leave it out'
            )
        if isinstance(value, str) and "\0" in value:
            raise AnmiError(f'parameter "{place}" holds a zero byte; leave it out')
    for name, expected in _TEXTS.items():
        value = parameters.get(name, expected)
        if not isinstance(value, str) or not value.strip():
            quotes = "; put a number in quotes" if isinstance(value, (int, float)) else ""
            raise AnmiError(f'parameter "{name}": {expected} was expected, not {value!r}{quotes}')
    seed = parameters.get("seed", 0)
    if not is_seed(seed):
        raise AnmiError(f'parameter "seed": a whole number from 0 to 2**32 - 1 was expected, not {seed!r}')
    for name in _SWITCHES:
        check_switch(name, parameters.get(name, False))


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Mapping, list, tuple)):
        named = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, item in named:
            yield from _leaves(item, f"{place}.{name}" if place else str(name))
    else:
        yield place, value


def check_switch(name: str, value: Any) -> None:
    """Refuse what is neither true nor false: a node would take any other text, `no` among them, for true.

    Examples
    --------
    >>> check_switch("update", True)
    """
    if not isinstance(value, bool):
        raise AnmiError(f'parameter "{name}": true or false was expected, not {value!r}')


def check_model(name: str, parameters: Mapping[str, Any], model: Any) -> None:
    """Refuse a branch of the parameters that its model does not accept.

    Kedro would, too; it cannot say which name is the nearest, and it prints many lines.

    Parameters
    ----------
    name
        Dotted name of the branch, as in ``params:NAME``.
    parameters
        All of them.
    model
        What the node that takes the branch is annotated with; anything but a pydantic model is left to Kedro.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return
    value: Any = parameters
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise AnmiError(f'the configuration lacks the parameter "{name}"')
        value = value[part]
    try:
        check_numbers(name, value, model.model_validate(value))
    except ValidationError as error:
        raise AnmiError(_sentence(name, error, model)) from None


def check_numbers(name: str, given: Any, made: Any) -> None:
    """Refuse true and false where a number is meant; pydantic would take them for 1 and 0.

    Parameters
    ----------
    name
        Of the parameter.
    given
        As it was configured.
    made
        The model that was made of it, or a value in it.
    """
    if isinstance(given, bool):
        if isinstance(made, (int, float)) and not isinstance(made, bool):
            raise AnmiError(f'parameter "{name}": a number was expected, not {str(given).lower()}')
    elif isinstance(given, Mapping):
        for key, value in given.items():
            # A step is written as its name with its parameters.
            found = made.params if isinstance(made, Step) else getattr(made, str(key), None)
            check_numbers(f"{name}.{key}", value, made.get(key) if isinstance(made, Mapping) else found)
    elif isinstance(given, (list, tuple)) and isinstance(made, (list, tuple)):
        for place, (value, found) in enumerate(zip(given, made, strict=False)):
            check_numbers(f"{name}.{place}", value, found)


def _sentence(name: str, error: ValidationError, model: type[BaseModel]) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join([name, *map(str, first["loc"])])
    holder = _holder(model, first["loc"])
    fields = getattr(holder, "model_fields", None)
    if first["type"] == "extra_forbidden":
        hint = nearest(str(first["loc"][-1]), fields) if fields else "its model has no such field"
        return f'there is no parameter "{place}": {hint}'
    if first["type"] in ("model_type", "dict_type"):
        inner = _holder(model, (*first["loc"], "")) if first["loc"] else model
        given = "" if first["input"] is None else f", not {first['input']!r}"
        return f'parameter "{place}": {_branch(place, getattr(inner, "model_fields", None) or ())}{given}'
    given = f", not {first['input']!r}" if isinstance(first["input"], (str, int, float)) else ""
    field = fields.get(str(first["loc"][-1])) if fields and first["loc"] else None
    default = field.get_default(call_default_factory=False) if field is not None and not field.is_required() else None
    known = isinstance(default, (str, int, float, tuple)) and default not in ("", ())
    cure = f"; its default is {default!r}" if known else ""
    return f'parameter "{place}": {first["msg"].removeprefix("Value error, ")}{given}{cure}'


def _holder(model: Any, place: tuple[int | str, ...]) -> Any:
    """Return the model in which the last part of a place is a field; None where that is no model's."""
    for part in place[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        model = None if field is None else field.annotation
    return model
