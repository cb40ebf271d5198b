"""Workers on Ray: on this machine, or on the machines of a cluster."""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from anmi.engine.base import Item, Result
from anmi.engine.params import EngineParams
from anmi.engine.ray_parts import HeldParts, hold, release
from anmi.engine.ray_session import Session, library, told
from anmi.engine.threads import VARIABLES, limited
from anmi.engine.window import Window
from anmi.errors import AnmiError

_log = logging.getLogger(__name__)
# A cluster that grows by need takes minutes to start a machine.
_START_SECONDS: Final = 600.0
# How long to wait at once, so that an interruption by the user is noticed.
_LOOK_SECONDS: Final = 5.0


class ShardWorker:
    """An actor of Ray, which keeps the functions that it was sent as long as they are in use."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._functions: dict[str, Callable[[Any], Any]] = {}

    def started(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    def work(self, call: str, function: list[Any], item: Any) -> Any:
        """Work on an item; the function is the one place in a list, lest Ray fetches it anew each time."""
        if call not in self._functions:
            self._functions[call] = library().get(function[0])
        with limited(self._threads):
            return self._functions[call](item)

    def forget(self, call: str) -> None:
        """Free what was kept for a call of the engine that has ended."""
        self._functions.pop(call, None)


@dataclass(eq=False)
class _Worker:
    """An actor; ``starting`` is what it is awaited by, None when it has started."""

    actor: Any
    starting: Any


@dataclass(eq=False)
class _Task:
    """An item on its way: sent, given to a worker, done."""

    sent: Any
    worker: _Worker | None = None
    running: Any = None
    lost: int = 0
    done: bool = False
    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True)
class _Call:
    """One use of the engine: its key, its function in Ray's object store, and who hold parts of that."""

    key: str
    function: Any
    held: HeldParts


class RayEngine:
    """Actors of Ray, which are kept between calls: each has its share of the threads, and if asked for of a GPU.

    A function is put into Ray's object store once; its arrays are mapped from there by all workers of a machine and
    cannot be written to. Its :class:`anmi.engine.parts.Parts` lie on one machine each, and are asked there. A worker
    that is lost, by whatever cause, is replaced, and its items are tried again; one that was lost before is tried
    alone, so that it takes no other with it. When a cluster has no room for another worker, those that are there go on.

    Parameters
    ----------
    params
        With 0 workers there are as many as the cluster has room for now; without a cluster, as of the local engine.
        On this machine the number of workers is the only limit: several engines share it.

    Raises
    ------
    AnmiError
        See :class:`anmi.engine.ray_session.Session`; or no machine can ever have the GPUs that a worker needs.
    """

    def __init__(self, params: EngineParams) -> None:
        self._ray = library()
        self._params = params
        self._session = Session(params.ray, params.most_workers)
        self._pool: list[_Worker] = []
        self._failed_starts = 0
        self._newest = 0.0
        self.workers = self._most_workers()

    @property
    def on_this_machine(self) -> bool:
        """Whether Ray was started on this machine, for this process alone."""
        return self._session.alone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ordered(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the result of each item, in their order; see :class:`anmi.engine.Engine`.

        Arrays in lists, tuples and dictionaries of a result belong to the caller.
        """
        self._prepare()
        sent, held = hold(function, self._params, self._put)
        call = _Call(uuid.uuid4().hex, self._put(sent), held)
        window = Window(self.workers, self._params.max_bytes)
        remaining = iter(items)
        under_way: deque[_Task] = deque()
        try:
            while True:
                for item in itertools.islice(remaining, max(window.limit - len(under_way), 0)):
                    under_way.append(_Task(self._put(item)))
                    self._assign(call, under_way, window.limit)
                if not under_way:
                    return
                while not under_way[0].done:
                    self._assign(call, under_way, window.limit)
                    self._await_one(under_way)
                task = under_way.popleft()
                if task.error is not None:
                    raise task.error
                window.saw(task.result)
                yield task.result
        finally:
            self._end(call, under_way)

    def close(self) -> None:
        """End the workers at once, and Ray too where it was started for this process."""
        if self._session.holds:
            for worker in self._pool:
                self._kill(worker)
        self._pool.clear()
        self._session.close()

    def _most_workers(self) -> int:
        ray = self._params.ray
        offered = self._ray.cluster_resources()
        gpus = offered.get("GPU", 0.0)
        if self._session.alone:
            if gpus < ray.gpus_per_worker:
                raise AnmiError(
                    f"engine.ray.gpus_per_worker is {ray.gpus_per_worker:g}, but this machine has {gpus:g} GPUs"
                )
            return self._params.most_workers
        if self._params.workers:
            return self._params.workers
        room = [offered.get("CPU", 0.0) / ray.cpus_per_worker]
        if ray.gpus_per_worker:
            room.append(gpus / ray.gpus_per_worker)
        return max(1, math.floor(min(room)))

    def _prepare(self) -> None:
        """Connect again if somebody ended that, and ask workers who have nothing to do whether they still live."""
        if not self._session.holds:
            self._pool.clear()
            self._session.open()
        for worker in self._pool:
            if worker.starting is None:
                worker.starting = worker.actor.started.remote()
        if any(worker.starting is not None for worker in self._pool):
            starting = [worker for worker in self._pool if worker.starting is not None]
            ready, _ = self._ray.wait([worker.starting for worker in starting], num_returns=len(starting), timeout=0.2)
            for worker in starting:
                if worker.starting in ready:
                    self._started(worker)
        self._newest = time.monotonic()
        self._refill()

    def _refill(self) -> None:
        ray = self._params.ray
        while len(self._pool) < self.workers:
            actor = (
                self._ray.remote(ShardWorker)
                .options(
                    num_cpus=0 if self._session.alone else ray.cpus_per_worker,
                    num_gpus=ray.gpus_per_worker,
                    max_restarts=0,
                    scheduling_strategy="SPREAD",
                    runtime_env={"env_vars": dict.fromkeys(VARIABLES, str(self._params.threads))},
                )
                .remote(self._params.threads)
            )
            self._pool.append(_Worker(actor, actor.started.remote()))
            self._newest = time.monotonic()

    def _put(self, value: Any) -> Any:
        try:
            return self._ray.put(value)
        except self._ray.exceptions.RayError as error:
            raise AnmiError(
                f"Ray has no room for what is sent to its workers ({told(error)}): make the shard of the stage "
                "smaller, such as bm25.shard, or give Ray more memory"
            ) from error

    def _assign(self, call: _Call, under_way: deque[_Task], limit: int) -> None:
        """Give waiting tasks to the workers who have the fewest, up to an equal share of the limit."""
        self._refill()
        share = math.ceil(limit / self.workers)
        ready = [worker for worker in self._pool if worker.starting is None]
        load: Counter[_Worker] = Counter()
        for task in under_way:
            if task.worker is not None:
                load[task.worker] += share if task.lost else 1
        for task in under_way:
            if task.done or task.worker is not None or not ready:
                continue
            worker = min(ready, key=lambda other: load[other])
            weight = share if task.lost else 1
            if load[worker] + weight <= share:
                load[worker] += weight
                task.worker = worker
                task.running = worker.actor.work.remote(call.key, [call.function], task.sent)

    def _await_one(self, under_way: deque[_Task]) -> None:
        """Wait until something has come of a task or of the start of a worker, and note what."""
        tasks = {task.running: task for task in under_way if task.worker is not None}
        starting = {worker.starting: worker for worker in self._pool if worker.starting is not None}
        awaited = [*tasks, *starting]
        ready, _ = self._ray.wait(awaited, num_returns=1, timeout=_LOOK_SECONDS)
        for reference in ready:
            if reference in tasks:
                self._note(tasks[reference])
            else:
                self._started(starting[reference])
        if not tasks and not ready and time.monotonic() - self._newest > _START_SECONDS:
            ray = self._params.ray
            raise AnmiError(
                f"Ray started none of {self.workers} workers in {_START_SECONDS:g} seconds: its cluster has no room "
                f"for one with {ray.cpus_per_worker:g} CPUs and {ray.gpus_per_worker:g} GPUs, so change engine.ray "
                "or the cluster"
            )

    def _note(self, task: _Task) -> None:
        """Take the result of a task, its error, or that its worker was lost."""
        errors = self._ray.exceptions
        worker, reference = task.worker, task.running
        task.worker, task.running = None, None
        try:
            task.result = _owned(self._ray.get(reference))
        except errors.RayError as error:
            cause = error.cause if isinstance(error, errors.RayTaskError) else error
            if isinstance(cause, errors.RayError):
                self._drop(worker, cause)
                self._lost(task, cause)
                return
            cause.__cause__ = error
            task.error = cause
        task.done, task.sent = True, None

    def _lost(self, task: _Task, why: BaseException) -> None:
        task.lost += 1
        if task.lost <= self._params.ray.retries:
            return
        task.done, task.sent = True, None
        task.error = AnmiError(
            f"workers of Ray were lost {task.lost} times at the same shard, most likely for want of memory "
            f"({told(why)}): lower engine.workers, or the shard of the stage, such as bm25.shard"
        )

    def _started(self, worker: _Worker) -> None:
        try:
            self._ray.get(worker.starting)
        except self._ray.exceptions.RayError as error:
            self._drop(worker, error)
            self._failed_starts += 1
            if self._failed_starts > self._params.ray.retries + self.workers:
                raise AnmiError(
                    f"Ray could not start workers ({told(error)}): install the same anmi, with the same extras, on "
                    "every machine of the cluster"
                ) from error
            return
        worker.starting = None
        self._failed_starts = 0

    def _drop(self, worker: _Worker | None, why: BaseException) -> None:
        """Take a worker off that answers no more; it may still live where nobody reaches it."""
        if worker in self._pool:
            _log.warning("a worker of Ray was lost (%s): another takes its place", told(why))
            self._pool.remove(worker)
            self._kill(worker)

    def _kill(self, worker: _Worker) -> None:
        with suppress(Exception):
            self._ray.kill(worker.actor)

    def _end(self, call: _Call, under_way: deque[_Task]) -> None:
        """Cancel what has not begun, and let workers free what they keep for the call."""
        if not self._session.holds:
            return
        for task in under_way:
            if task.running is not None:
                with suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(task.running)
        for worker in self._pool:
            if worker.starting is None:
                worker.actor.forget.remote(call.key)
        release(call.held)


def _owned(result: Any) -> Any:
    """Copy arrays out of the object store, where they could not be written to and would take its room."""
    if isinstance(result, np.ndarray):
        return result if result.flags.writeable else result.copy()
    if isinstance(result, dict):
        return {key: _owned(value) for key, value in result.items()}
    if type(result) in (list, tuple):
        return type(result)(map(_owned, result))
    return result
