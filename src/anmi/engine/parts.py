"""What is too large for one worker: held in parts, of which each answers for itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parts:
    """Parts of one thing, such as ranges of the documents of an index; a field of a function that workers are sent.

    Each worker of this machine maps all of them; on Ray each part lies on one machine, and is asked there.

    Attributes
    ----------
    held
        Called with a request; they return plain data.

    Examples
    --------
    >>> Parts((len, str))([1, 2])
    [2, '[1, 2]']
    """

    held: tuple[Callable[[Any], Any], ...]

    def __len__(self) -> int:
        return len(self.held)

    def __call__(self, request: Any) -> list[Any]:
        """Return what each part answers, in their order."""
        return [part(request) for part in self.held]


def placed(function: Any, place: Callable[[Parts], Any]) -> Any:
    """Return a function with its parts, in fields of dataclasses however deep, replaced by what stands for them.

    Examples
    --------
    >>> placed(Parts((len, str)), len), placed(len, len) is len
    (2, True)
    """
    if isinstance(function, Parts):
        return place(function)
    if not dataclasses.is_dataclass(function) or isinstance(function, type):
        return function
    before = {field.name: getattr(function, field.name) for field in dataclasses.fields(function) if field.init}
    after = {name: placed(value, place) for name, value in before.items()}
    changed = {name: value for name, value in after.items() if value is not before[name]}
    return dataclasses.replace(function, **changed) if changed else function
