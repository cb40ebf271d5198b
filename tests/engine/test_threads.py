"""Threads of this process: order, laziness, errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from anmi.engine.threads import ahead, in_threads


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    later = threading.Event()

    def slow_first(item: int) -> int:
        if item == 0 and workers > 1:
            assert later.wait(10), "the second item was to go on beside the first"
        later.set()
        return -item

    assert [*in_threads(slow_first, iter(range(9)), workers)] == [-item for item in range(9)]


def test_items_are_taken_as_threads_get_free() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = in_threads(lambda item: item, items(), 2)
    assert next(results) == 0
    assert len(taken) <= 4
    results.close()
    assert len(taken) <= 4


def test_an_error_is_raised_where_its_result_would_come() -> None:
    results = in_threads(lambda item: 1 // item, [1, 0, 1], 2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_the_next_item_is_made_while_this_one_is_looked_at() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for place, event in enumerate(made):
            event.set()
            yield place

    found = ahead(items())
    assert next(found) == 0
    assert made[1].wait(10)
    assert not made[2].is_set()
    assert [*found] == [1, 2]


def test_an_error_of_the_maker_reaches_the_reader() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the file is gone")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(OSError, match="gone"):
        next(found)
