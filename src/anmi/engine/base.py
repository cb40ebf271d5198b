"""What every engine offers, whatever it runs on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from anmi.errors import AnmiError, causes, masked

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """Why an item has no result.

    Attributes
    ----------
    message
        One sentence for people.
    trace
        Where it happened, as Python prints it; empty where the worker process ended without saying why.
    expected
        True for an error that the user can do something about (:class:`anmi.errors.AnmiError`).
    """

    message: str
    trace: str = ""
    expected: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Describe an exception; one that stems from an :class:`AnmiError` is told by that error's sentence.

        Examples
        --------
        >>> Failure.of(ZeroDivisionError("division by zero")).message
        'ZeroDivisionError: division by zero'
        """
        trace = masked("".join(traceback.format_exception(error)))
        for cause in causes(error):
            if isinstance(cause, AnmiError):
                return cls(masked(" ".join(str(cause).split())), trace, expected=True)
        text = masked(" ".join(str(error).split()))
        return cls(f"{type(error).__name__}: {text}" if text else type(error).__name__, trace)


@dataclass(frozen=True)
class Outcome(Generic[Item, Result]):
    """What became of one item: a result, or the failure that came instead."""

    item: Item
    result: Result | None = None
    failure: Failure | None = None


class Engine(Protocol):
    """Runs a function over items.

    The results must not depend on the engine, on how many workers it has, or on the order in which they finish.
    """

    @property
    def on_this_machine(self) -> bool:
        """Whether all workers are on this machine, and so see its files."""
        ...

    def ordered(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the result of each item, in the order of the items; an error ends it.

        Parameters
        ----------
        function
            A function of a module, or an instance of such a class, that can be sent to other processes. It is sent
            once; its arrays are shared by the workers of a machine and cannot be written to. What it makes of them at
            its first call, such as an index, each worker keeps.
        items
            Plain data. They are taken as workers get free, so they need not be in memory together, and a bounded
            number of bytes of results waits for the caller.

        Raises
        ------
        AnmiError
            Workers were lost again and again.
        """
        ...
