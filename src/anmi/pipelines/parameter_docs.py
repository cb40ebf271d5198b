"""The settings listed in conf/base/parameters*.yml, made from the models.

``python -m anmi.pipelines.parameter_docs conf/base`` writes the lists anew, below whatever the files set.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from anmi.selection.recipe import Recipe
from anmi.training.options import TrainingOptions
from anmi.training.parts import PartOptions

MARK: Final = (
    "# Every setting with its default and the reason for it. Set one above, in conf/local/parameters.yml, or for one\n"
    "# run by --params NAME=VALUE. The list is written by: python -m anmi.pipelines.parameter_docs conf/base\n"
)
_WIDTH: Final = 120
_SIGNS: Final = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}
# Mappings whose values a model of their own checks.
_OPEN: Final[dict[str, type[BaseModel]]] = {"training.options": TrainingOptions, "recipes.NAME": Recipe}


def written(value: Any) -> str:
    """Write a value as in YAML.

    Examples
    --------
    >>> written(None), written(True), written((0.5, 1.0)), written({"own": 7})
    ('null', 'true', '[0.5, 1]', '{own: 7}')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {written(each)}' for name, each in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def values(field: FieldInfo) -> str:
    """Choices of a parameter, or its bounds."""
    kinds = (field.annotation, *get_args(field.annotation))
    for options in (get_args(kind) for kind in kinds if get_origin(kind) is Literal):
        return f"One of {', '.join(f'`{written(option)}`' for option in options)}."
    bounds = [(*_SIGNS[type(bound)], bound) for bound in field.metadata if type(bound) in _SIGNS]
    told = ", ".join(f"{sign} {written(getattr(bound, name))}" for sign, name, bound in bounds)
    return f"({told})" if told else ""


def models_of_parameters() -> dict[str, type[BaseModel]]:
    """Return the model of each branch of the parameters, as the nodes of all pipelines annotate them."""
    from kedro.framework.project import pipelines
    from kedro.validation.type_extractor import TypeExtractor

    return dict(TypeExtractor(dict(pipelines)).extract_types_from_pipelines())


def listed(name: str, model: type[BaseModel]) -> str:
    """Return the settings of a branch as comments.

    Parameters
    ----------
    name
        Of the branch, such as ``bm25``.
    model
        Its model.

    Examples
    --------
    >>> from pydantic import Field
    >>> class Params(BaseModel):
    ...     k1: float = Field(1.2, ge=0, description="How soon a repeated term counts no more.")
    >>> print(listed("bm25", Params))
    # bm25.k1 = 1.2 (≥ 0)
    #     How soon a repeated term counts no more.
    """
    return "\n".join(f"# {line}".rstrip() for line in _lines(name, model))


def updated(text: str, models: Mapping[str, type[BaseModel]]) -> str:
    """Return a file of parameters with the list below its mark written anew; unchanged where none of it has a model."""
    above = text.partition(MARK)[0].rstrip()
    lists = [
        listed("recipes.NAME" if name == "recipes" else name, Recipe if name == "recipes" else models[name])
        for name in yaml.safe_load(text) or {}
        if name in models
    ]
    return "\n".join([above, "", MARK + "#", *lists, ""]) if lists else text


def _lines(
    name: str, model: type[BaseModel], given: BaseModel | None = None, told: Mapping[str, FieldInfo] | None = None
) -> Iterator[str]:
    fields = {key: field for key, field in model.model_fields.items() if not _is_told(key, field, told or {})}
    for key, field in fields.items():
        place = f"{name}.{key}"
        value = getattr(given, key) if given is not None else _default(field)
        if isinstance(value, BaseModel) and not isinstance(value, PartOptions):
            yield from _lines(place, type(value), value)
            continue
        shown = "" if field.is_required() and given is None else f" = {_shown(value)}"
        yield f"{place}{shown}{_range(field)}"
        yield from _wrapped(" ".join((field.description or "").split()))
        if place in _OPEN:
            yield from _lines(place, _OPEN[place])
        elif (inner := _model_within(field.annotation)) is not None:
            below = f"{place}.NAME" if get_origin(field.annotation) is dict else place
            yield from _lines(below, inner, told=model.model_fields)
    if len(fields) < len(model.model_fields):
        yield f"{name}.*"
        yield from _wrapped(f"All others are those of {name.rpartition('.')[0]}, with the same defaults.")


def _is_told(key: str, field: FieldInfo, told: Mapping[str, FieldInfo]) -> bool:
    """Tell whether the branch around has the very same setting."""
    return key in told and (told[key].description, _default(told[key])) == (field.description, _default(field))


def _wrapped(text: str) -> list[str]:
    wrapper = textwrap.TextWrapper(_WIDTH - 2, initial_indent=" " * 4, subsequent_indent=" " * 4)
    wrapper.break_on_hyphens = wrapper.break_long_words = False
    return wrapper.wrap(text)


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _shown(value: Any) -> str:
    return value.kind if isinstance(value, PartOptions) else written(value) or "''"


def _range(field: FieldInfo) -> str:
    """Choices or bounds, in parentheses."""
    told = values(field).replace("`", "")
    if told.startswith("One of "):
        return f" ({' | '.join(told.removeprefix('One of ').removesuffix('.').split(', '))})"
    return f" {told}" if told else ""


def _model_within(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a branch that is empty by default, or of the values of a mapping."""
    parts = () if get_origin(annotation) in (list, tuple) else (annotation, *get_args(annotation))
    found = (part for part in parts if isinstance(part, type) and issubclass(part, BaseModel))
    return next((part for part in found if not issubclass(part, PartOptions)), None)


if __name__ == "__main__":
    from kedro.framework.startup import bootstrap_project

    bootstrap_project(Path.cwd())
    known = models_of_parameters()
    for file in sorted(Path(sys.argv[1]).glob("parameters*.yml")):
        file.write_text(updated(file.read_text(encoding="utf-8"), known), encoding="utf-8")
