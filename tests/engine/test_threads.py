"""Work of a thread ahead of the reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from anmi.engine.threads import ahead


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
