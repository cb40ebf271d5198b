"""Parts of what is too large for one machine, each held by an actor of Ray."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anmi.engine.params import EngineParams
from anmi.engine.parts import Parts, placed
from anmi.engine.ray_session import library
from anmi.engine.threads import VARIABLES, limited


class PartHolder:
    """An actor of Ray that answers for a part; its arrays are mapped from the object store of its machine."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._part: Callable[[Any], Any] | None = None

    def answer(self, part: list[Any], request: Any) -> Any:
        """Return what the part answers; it is the one place in a list, lest Ray fetches it anew each time."""
        if self._part is None:
            self._part = library().get(part[0])
        with limited(self._threads):
            return self._part(request)


@dataclass(frozen=True)
class HeldParts:
    """Stands for parts, in the function that workers are sent: asks the actors that hold them, all at once.

    Attributes
    ----------
    holders
        An actor for each part, and the part's place in Ray's object store, from which a new actor would fetch it.
    """

    holders: tuple[tuple[Any, Any], ...]

    def __len__(self) -> int:
        return len(self.holders)

    def __call__(self, request: Any) -> list[Any]:
        """Return what each part answers, in their order."""
        ray = library()
        sent = ray.put(request)
        found: list[Any] = ray.get([holder.answer.remote([part], sent) for holder, part in self.holders])
        return found


def hold(function: Any, params: EngineParams, put: Callable[[Any], Any]) -> tuple[Any, HeldParts]:
    """Let actors hold the parts of a function, each once, spread over the machines.

    Ray starts an actor anew, elsewhere, when its machine is lost, and asks it again. Actors ask for no CPU of their
    own: while they work, the worker that asked them waits.

    Parameters
    ----------
    function
        See :func:`anmi.engine.parts.placed`; parts that are only one stay where they are.
    params
        Threads, retries.
    put
        Puts a value into the object store.

    Returns
    -------
    function, held
        To be sent to workers; and what :func:`release` ends.
    """
    made: list[tuple[Any, Any]] = []
    actor = library().remote(PartHolder).options(
        num_cpus=0, max_restarts=params.ray.retries, max_task_retries=-1, scheduling_strategy="SPREAD",
        runtime_env={"env_vars": dict.fromkeys(VARIABLES, str(params.threads))},
    )  # fmt: skip

    def place(parts: Parts) -> Any:
        if len(parts) == 1:
            return parts
        held = tuple((actor.remote(params.threads), put(part)) for part in parts.held)
        made.extend(held)
        return HeldParts(held)

    return placed(function, place), HeldParts(tuple(made))


def release(held: HeldParts) -> None:
    """End the actors."""
    for actor, _ in held.holders:
        with suppress(Exception):
            library().kill(actor)
