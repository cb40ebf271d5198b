"""Threads: a fixed number for arithmetic, since their number can change the last bits of a sum; and side by side."""

from __future__ import annotations

import importlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., object])

# Each library for arithmetic has a name of its own for the same thing.
VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


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


def with_torch(function: Function) -> Function:
    """Mark a function as one that computes with torch, and that two threads may call at once.

    torch lets other threads run while it computes, and a process of its own takes seconds to import it, so a few items
    are better worked on by threads of this process; see :func:`side_by_side`.
    """
    function.with_torch = True  # type: ignore[attr-defined]
    return function


def outside_python(function: Function) -> Function:
    """Mark a function as one that computes in NumPy, SciPy or FAISS, and that two threads may call at once.

    These let other threads run while they compute, so threads of this process keep a few cores busy without the
    seconds, and the memory, that a process of its own takes to begin; see :func:`side_by_side`.
    """
    function.outside_python = True  # type: ignore[attr-defined]
    return function


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, threads: int
) -> Iterator[Result]:
    """Yield the result of each item, in their order, computed by several threads of this process.

    Parameters
    ----------
    function
        One that is marked by :func:`with_torch` or :func:`outside_python`.
    items, workers
        See :func:`in_threads`.
    threads
        For the arithmetic of each item.

    Examples
    --------
    >>> list(side_by_side(len, ["a", "bc"], workers=2, threads=1))
    [1, 2]
    """
    from threadpoolctl import threadpool_limits

    with_it = getattr(function, "with_torch", False)
    torch = importlib.import_module("torch") if with_it else sys.modules.get("torch")
    begun = threading.local()

    def work(item: Item) -> Result:
        # OpenMP and torch ask each thread anew how many it may use.
        if not hasattr(begun, "limits"):
            begun.limits = threadpool_limits(threads)
            if torch is not None:
                torch.set_num_threads(threads)
        return function(item)

    with limited(threads):
        yield from in_threads(work, items, workers)


def in_threads(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yield the result of each item, in their order, from several threads of this process.

    Parameters
    ----------
    function
        One that mostly reads, writes or computes outside of Python.
    items
        What it is called with, taken as threads get free.
    workers
        Items at once.

    Examples
    --------
    >>> list(in_threads(len, iter(["a", "bc", ""]), workers=2))
    [1, 2, 0]
    """
    running = deque[Future[Result]]()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) > workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


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
    lock, preprocess = threading.Lock(), model.preprocess

    def one_at_a_time(*arguments: Any, **options: Any) -> Any:
        with lock:
            return preprocess(*arguments, **options)

    model.preprocess = one_at_a_time
    return model
