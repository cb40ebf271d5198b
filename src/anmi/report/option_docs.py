"""The lists of options in docs/training.md, made from the models.

``python -m anmi.report.option_docs docs/training.md`` writes them anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from anmi.report.step_docs import cell, updated, values, written
from anmi.training.options import TrainingOptions
from anmi.training.options.curricula import CURRICULA
from anmi.training.options.drawing import DRAWS
from anmi.training.options.hardness import HARDNESS
from anmi.training.options.losses import LOSSES
from anmi.training.options.part import PartOptions
from anmi.training.options.sources import NEGATIVE_SOURCES
from anmi.training.options.temperatures import TEMPERATURES

_HINT: Final = "python -m anmi.report.option_docs docs/training.md writes the lines up to the next mark"
TABLES: Final[dict[str, Sequence[type[PartOptions]]]] = {
    "losses": LOSSES,
    "temperatures": TEMPERATURES,
    "sources": NEGATIVE_SOURCES,
    "draws": DRAWS,
    "curricula": CURRICULA,
    "hardness": HARDNESS,
    "options": (),
}


def start(name: str) -> str:
    """Return the mark above a table."""
    return f"<!-- {name}: {_HINT} -->"


def end(name: str) -> str:
    """Return the mark below a table."""
    return f"<!-- end of {name} -->"


def table(name: str) -> str:
    """Return one of :data:`TABLES` as Markdown: the kinds of a part with their parameters, or all options."""
    kinds = TABLES[name]
    if not kinds:
        return "\n".join(["| option | default | meaning |", "|---|---|---|", *_rows(TrainingOptions, "")])
    lines = ["| kind | parameter | default | meaning |", "|---|---|---|---|"]
    for kind in kinds:
        summary = (kind.__doc__ or "").strip().split("\n\n")[0]
        lines += [f"| **`{kind.kind}`** | | | {cell(summary)} |", *_rows(kind, "| ")]
    return "\n".join(lines)


def _rows(model: type[BaseModel], indent: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        meaning = " ".join(part for part in (field.description or "", values(field)) if part)
        yield f"{indent}| `{name}` | `{_default(field)}` | {cell(meaning)} |"


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, PartOptions):
        return value.kind
    if isinstance(value, BaseModel):
        return written(value.model_dump())
    return written(value)


def all_updated(text: str) -> str:
    """Return a document with every table written anew.

    Raises
    ------
    ValueError
        A table's marks are missing.
    """
    for name in TABLES:
        text = updated(text, start(name), end(name), lambda name=name: table(name))  # type: ignore[misc]
    return text


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(all_updated(document.read_text(encoding="utf-8")), encoding="utf-8")
