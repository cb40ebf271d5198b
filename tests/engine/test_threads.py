"""Threads of this process: the order of results, and work ahead of the reader."""

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


def test_the_next_item_is_made_while_this_one_is_looked_at() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for place, event in enumerate(made):
            event.set()
            yield place
        raise OSError("the file is gone")

    found = ahead(items())
    assert next(found) == 0
    assert made[1].wait(10)
    assert not made[2].is_set()
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(OSError, match="gone"):
        next(found)
