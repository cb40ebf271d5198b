"""A part of a configuration that comes in several kinds, each with parameters of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from anmi.errors import nearest


class PartOptions(BaseModel):
    """Base of the parameters of one kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: ClassVar[str]

    @property
    def reads(self) -> tuple[str, ...]:
        """Judgments of the training rows that this kind cannot do without."""
        return ()


class OneOf:
    """Says which kinds a field takes, as the annotation of its type.

    Written as in recipes: a name, or one name with its parameters, ``debiased`` or ``{debiased: {tau_plus: 0.1}}``.
    ``former`` says by name what is to be done instead of a kind that is gone.

    Examples
    --------
    >>> from typing import Annotated
    >>> class Fixed(PartOptions):
    ...     kind = "fixed"
    ...     value: float = 0.07
    >>> class Options(BaseModel):
    ...     temperature: Annotated[PartOptions, OneOf(Fixed)] = Fixed()
    >>> Options(temperature={"fixed": {"value": 0.05}}).temperature.value
    0.05
    >>> Options(temperature="fixed").model_dump()
    {'temperature': {'fixed': {'value': 0.07}}}
    """

    def __init__(self, *kinds: type[PartOptions], former: Mapping[str, str] | None = None) -> None:
        self._known = {options.kind: options for options in kinds}
        self._former = former or {}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Tell pydantic how to read and write the field."""
        return core_schema.no_info_plain_validator_function(
            lambda value: _read(value, self._known, self._former),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: {value.kind: value.model_dump()}
            ),
        )


def _read(value: Any, known: Mapping[str, type[PartOptions]], former: Mapping[str, str]) -> PartOptions:
    if isinstance(value, PartOptions):
        return value
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, Mapping) or len(value) != 1:
        example = next(iter(known))
        raise ValueError(f"one name with its parameters is expected, such as `{{{example}: {{}}}}`, and not {value!r}")
    name, parameters = next(iter(value.items()))
    if name in former:
        raise ValueError(f'"{name}" is no longer there: {former[name]}')
    if name not in known:
        raise ValueError(f'there is no "{name}"; {nearest(str(name), known)}')
    fields = known[name].model_fields
    if not isinstance(parameters := parameters or {}, Mapping):
        raise ValueError(f'the parameters of "{name}" are names with values, and not {parameters!r}')
    wrong = [str(key) for key in parameters if key not in fields]
    if wrong:
        hint = nearest(wrong[0], fields) if fields else "it has none"
        raise ValueError(f'"{name}" has no parameter "{wrong[0]}"; {hint}')
    try:
        return known[name](**parameters)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f'"{name}"{f", {place}" if place else ""}: {message}') from error
