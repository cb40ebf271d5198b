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
    """An actor of Ray that answers for a part; its arrays are mapped from the object store of its machine.

    Parameters
    ----------
    part
        Its place in the object store, the one in a list. Ray would fetch it itself, but warns of every such argument.
    threads
        For arithmetic.
    """

    def __init__(self, part: list[Any], threads: int) -> None:
        self._part, self._threads = library().get(part[0]), threads

    def answer(self, request: Any) -> Any:
        """Return what the part answers."""
        with limited(self._threads):
            return self._part(request)


class HeldParts:
    """Stands for parts, in the function that workers are sent: asks the actors that hold them, all at once."""

    def __init__(self, holders: list[Any]) -> None:
        self._holders = holders

    def __len__(self) -> int:
        return len(self._holders)

    def __call__(self, request: Any) -> list[Any]:
        """Return what each part answers, in their order."""
        ray = library()
        sent = ray.put(request)
        found: list[Any] = ray.get([holder.answer.remote(sent) for holder in self._holders])
        return found


@dataclass(frozen=True)
class Holder:
    """An actor, and its part in the object store of this process's machine, from which a new one would fetch it."""

    actor: Any
    part: Any


def hold(function: Any, params: EngineParams, put: Callable[[Any], Any]) -> tuple[Any, list[Holder]]:
    """Let actors hold the parts of a function, each once, spread over the machines.

    Ray starts an actor anew, elsewhere, when its machine is lost, and asks it again. Actors ask for no CPU of their own: while they work, the worker
    that asked them waits.

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
    function, holders
        To be sent to workers, and the actors, which :func:`release` ends.
    """
    holders: list[Holder] = []
    actor = library().remote(PartHolder).options(
        num_cpus=0, max_restarts=params.ray.retries, max_task_retries=-1, scheduling_strategy="SPREAD",
        runtime_env={"env_vars": dict.fromkeys(VARIABLES, str(params.threads))},
    )  # fmt: skip

    def place(parts: Parts) -> Any:
        if len(parts) == 1:
            return parts
        sent = [put(part) for part in parts.held]
        made = [Holder(actor.remote([part], params.threads), part) for part in sent]
        holders.extend(made)
        return HeldParts([holder.actor for holder in made])

    return placed(function, place), holders


def release(holders: list[Holder]) -> None:
    """End the actors."""
    for holder in holders:
        with suppress(Exception):
            library().kill(holder.actor)
