"""The list of steps in docs/selection.md, made from the registry.

``python -m anmi.report.step_docs docs/selection.md`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from anmi.selection.steps import STEPS, StepType

START: Final = "<!-- steps: python -m anmi.report.step_docs docs/selection.md writes the lines up to the next mark -->"
END: Final = "<!-- end of steps -->"
_SIGNS: Final = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def steps_table() -> str:
    """Return all registered steps with their parameters as a Markdown table.

    Returns
    -------
    str
        A row per step with the first sentence of its documentation, and below it a row per parameter with its
        default, its bounds or choices, and its description. Steps of one module stand together.
    """
    lines = ["| step | parameter | default | meaning |", "|---|---|---|---|"]
    for kind in sorted(STEPS.values(), key=lambda kind: (kind.sampler, kind.apply.__module__)):
        lines.append(f"| **`{kind.name}`** | | | {cell(_summary(kind))} |")
        for name, field in kind.params.model_fields.items():
            default = "" if field.is_required() else f"`{written(field.default)}`"
            meaning = " ".join(part for part in (field.description or "", values(field)) if part)
            lines.append(f"| | `{name}` | {default} | {cell(meaning)} |")
    return "\n".join(lines)


def _summary(kind: StepType) -> str:
    return (kind.apply.__doc__ or "").strip().split("\n\n")[0]


def cell(text: str) -> str:
    """Return a text as it may stand in a cell of a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


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


def updated(text: str, start: str = START, end: str = END, make: Callable[[], str] = steps_table) -> str:
    """Return a document with the lines between its marks replaced by the table.

    Parameters
    ----------
    text
        The document.
    start, end
        The marks.
    make
        Returns what is to stand between them.

    Raises
    ------
    ValueError
        The document has not both marks.
    """
    before, _, rest = text.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the document lacks the marks {start} and {end}")
    return f"{before}{start}\n\n{make()}\n\n{end}{after}"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
