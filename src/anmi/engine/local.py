"""Worker processes on this machine."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tqdm import tqdm

from anmi.engine.base import Failure, Item, Outcome, Result
from anmi.engine.threads import VARIABLES, limited, side_by_side
from anmi.engine.transport import pack, unpack
from anmi.engine.window import Window
from anmi.errors import AnmiError
from anmi.store.room import room

_RETRIES: Final = 3
# By what functions are marked: how many times more items than otherwise are few for them.
_IN_THREADS: Final = {"with_torch": 2, "outside_python": 16}
_PREFIX: Final = "anmi-engine-"


class LocalEngine:
    """A pool of worker processes, each with its share of the threads.

    Two processes that each use all threads slow each other several times, so the number of threads per worker is
    fixed; it does not depend on the number of workers, since it can change the last bits of a sum. Workers are spawned
    (a fork of a process with threads may hang), take one item after the other, and end with this process, however
    that ends.

    A worker that dies (killed for its memory, for example) breaks the pool. The items that were under way are then
    tried once more, each alone, so that the one to blame fails and no other.

    Parameters
    ----------
    workers
        Processes at once, at least 1; with 1, work is still done in a process of its own.
    threads
        Of each worker, at least 1.
    quiet
        Draw no progress bars inside the workers; those of several would overwrite each other.
    max_bytes
        Of results of :meth:`ordered` that may wait for the caller, as far as can be foreseen.
    few
        :meth:`ordered` works on fewer items than this, or with one worker, in this process; in threads of it on fewer
        than twice as many for functions that compute with torch (:func:`anmi.engine.threads.with_torch`), and than 16
        times as many for those that compute outside of Python (:func:`anmi.engine.threads.outside_python`).

    Examples
    --------
    >>> with LocalEngine(workers=1) as engine:
    ...     [outcome.result for outcome in engine.map(len, ["ab"])], list(engine.ordered(len, ["a", "bc"]))
    ([2], [1, 2])
    """

    def __init__(
        self, *, workers: int, threads: int = 1, quiet: bool = True, max_bytes: int = 1 << 30, few: int = 0
    ) -> None:
        if workers < 1 or threads < 1:
            raise ValueError(f"at least one worker with one thread is needed, not {workers} with {threads}")
        self.workers, self.threads, self._quiet = workers, threads, quiet
        self._max_bytes, self._few = max_bytes, few
        self._pool: ProcessPoolExecutor | None = None

    @property
    def on_this_machine(self) -> bool:
        """True."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=error is not None)

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], *, description: str = ""
    ) -> Iterator[Outcome[Item, Result]]:
        """Yield the outcome of each item as it is finished, in whatever order that is; an error ends no other item.

        Parameters
        ----------
        function
            A function of a module, so that other processes can import it.
        items
            What it is called with; plain data that can be sent to other processes.
        description
            Name of the progress bar; none is drawn without.
        """
        with tqdm(total=len(items), desc=description, disable=not description, delay=2) as bar:
            for outcome in self._run(function, list(items)):
                bar.update()
                yield outcome

    def ordered(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the result of each item, in their order; see :class:`anmi.engine.Engine`."""
        remaining = iter(items)
        marks = [times for mark, times in _IN_THREADS.items() if getattr(function, mark, False)]
        in_threads = self.workers > 1 and bool(marks)
        few = self._few * max(marks if in_threads else [1])
        first = list(itertools.islice(remaining, few))
        if in_threads and len(first) < few:
            yield from side_by_side(function, first, self.workers, self.threads)
            return
        if self.workers == 1 or len(first) < few:
            for item in itertools.chain(first, remaining):
                with limited(self.threads):
                    result = function(item)
                yield result
            return
        with tempfile.TemporaryDirectory(dir=room(_PREFIX)) as folder:
            pack(function, Path(folder))
            yield from self._through_pool(folder, itertools.chain(first, remaining))

    def _through_pool(self, folder: str, items: Iterator[Any]) -> Iterator[Any]:
        window = Window(self.workers, self._max_bytes)
        running: deque[tuple[Any, Future[Any]]] = deque()
        lost = 0
        try:
            while True:
                for item in itertools.islice(items, max(window.limit - len(running), 0)):
                    running.append((item, self._begun(folder, item)))
                if not running:
                    return
                item, future = running.popleft()
                if isinstance(future.exception(), BrokenProcessPool):
                    lost += 1
                    self._recover(folder, [(item, future), *running], running, lost)
                    continue
                lost = 0
                result = future.result()
                window.saw(result)
                yield result
        finally:
            for _, future in running:
                future.cancel()

    def _begun(self, folder: str, item: Any) -> Future[Any]:
        try:
            return self._submit(_shipped, (folder, item))
        except BrokenProcessPool as error:
            broken: Future[Any] = Future()
            broken.set_exception(error)
            return broken

    def _recover(
        self, folder: str, pairs: list[tuple[Any, Future[Any]]], running: deque[tuple[Any, Future[Any]]], lost: int
    ) -> None:
        """Begin again what was under way when a worker died; what was finished stays."""
        if lost > _RETRIES:
            raise AnmiError(
                f"worker processes were killed {lost} times at the same shard, most likely for want of memory: lower "
                "engine.workers, or the shard of the stage, such as bm25.shard"
            )
        wait([future for _, future in pairs])
        self.close(at_once=True)
        running.clear()
        for item, future in pairs:
            broken = isinstance(future.exception(), BrokenProcessPool)
            running.append((item, self._begun(folder, item) if broken else future))

    def _run(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Outcome[Any, Any]]:
        waiting, suspects = list(reversed(items)), list[Any]()
        running: dict[Future[Any], Any] = {}
        while waiting or running:
            # No more than there are workers: what is in the pool when it breaks is what was under way.
            while waiting and len(running) < self.workers:
                item = waiting.pop()
                try:
                    running[self._submit(function, item)] = item
                except BrokenProcessPool:
                    self.close(at_once=True)
                    waiting.append(item)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                item = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    suspects.append(item)
                else:
                    yield _outcome(item, future)
        for item in suspects:
            self.close(at_once=True)
            future = self._submit(function, item)
            wait([future])
            yield _outcome(item, future)
        if suspects:
            self.close(at_once=True)

    def _submit(self, function: Callable[[Any], Any], item: Any) -> Future[Any]:
        variables = dict.fromkeys(VARIABLES, str(self.threads))
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=(self._quiet,),
            )
        with environment(variables):
            return self._pool.submit(function, item)

    def close(self, *, at_once: bool = False) -> None:
        """End the workers: when they have finished what they are at, or at once."""
        if self._pool is None:
            return
        processes = list((getattr(self._pool, "_processes", None) or {}).values()) if at_once else []
        for process in processes:
            process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None


# What this worker was sent last: (folder it came in, function).
_sent: list[Any] = ["", None]


def _shipped(job: tuple[str, Any]) -> Any:
    """Work on an item, in a worker, with the function that lies in a folder."""
    folder, item = job
    if _sent[0] != folder:
        _sent[:] = [folder, unpack(Path(folder))]
    return _sent[1](item)


def _outcome(item: Item, future: Future[Result]) -> Outcome[Item, Result]:
    error = future.exception()
    if error is None:
        return Outcome(item, future.result())
    if isinstance(error, BrokenProcessPool):
        return Outcome(item, failure=Failure("the worker process was killed, most likely for want of memory"))
    return Outcome(item, failure=Failure.of(error))


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started meanwhile.

    A worker cannot set them for itself: what it imports to find the function may read them before.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin(quiet: bool) -> None:
    """Let this worker end when its parent is gone, as it would wait for work for ever, and draw bars only if asked."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if quiet:
        hide_bars()


def hide_bars() -> None:
    """Draw no progress bar in this process; TQDM_DISABLE does not reach one that is told explicitly to be drawn."""
    draw = tqdm.__init__

    def hidden(*arguments: Any, **options: Any) -> None:
        draw(*arguments, **(options | {"disable": True}))

    tqdm.__init__ = hidden


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
