"""Arithmetic uses a fixed number of threads, which can change the last bits of a sum."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each library for arithmetic has a name of its own for the same thing.
VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let NumPy, FAISS and torch use so many threads inside the block.

    Examples
    --------
    >>> import threadpoolctl
    >>> with limited(1):
    ...     {library["num_threads"] for library in threadpoolctl.threadpool_info()} <= {1}
    True
    """
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    with threadpool_limits(threads):
        if torch is not None:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


def in_order(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item], under_way: int
) -> Iterator[Result]:
    """Yield the result of each item in order, with ``under_way`` items running at once.

    Examples
    --------
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(lambda item: pool.submit(len, item), ["a", "bc"], 2))
    [1, 2]
    """
    running = deque[Future[Result]]()
    try:
        for item in items:
            running.append(submit(item))
            if len(running) >= under_way:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, threads: int = 0
) -> Iterator[Result]:
    """Yield the result of each item, in their order, from several threads of this process.

    Parameters
    ----------
    function
        One that mostly reads, writes or computes outside of Python.
    items
        What it is called with, taken as threads get free.
    workers
        Items at once.
    threads
        For the arithmetic of each item; 0 for as many as there were.

    Examples
    --------
    >>> list(in_threads(len, iter(["a", "bc", ""]), workers=2))
    [1, 2, 0]
    """

    def begin() -> None:
        # OpenMP and torch ask each thread anew how many it may use.
        if threads:
            from threadpoolctl import threadpool_limits

            threadpool_limits(threads)
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(threads)

    with (
        limited(threads) if threads else nullcontext(),
        ThreadPoolExecutor(workers, initializer=begin) as pool,
    ):
        yield from in_order(lambda item: pool.submit(function, item), items, workers + 1)


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, while the next one is made by another thread.

    Examples
    --------
    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    nothing = object()
    iterator = iter(items)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, iterator, nothing)
        while (item := coming.result()) is not nothing:
            coming = pool.submit(next, iterator, nothing)
            yield item  # type: ignore[misc]


def for_threads(model: Any) -> Any:
    """Let several threads ask a model of sentence-transformers at once.

    Its tokeniser, which may refuse that, is asked by one after the other.
    """
    lock = threading.Lock()
    preprocess = model.preprocess

    def one_at_a_time(*arguments: Any, **options: Any) -> Any:
        with lock:
            return preprocess(*arguments, **options)

    model.preprocess = one_at_a_time
    return model
