"""Worker processes: every item ends somehow, whatever becomes of the others and of the worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anmi.engine import Engine, LocalEngine
from anmi.engine.threads import outside_python, with_torch
from anmi.errors import AnmiError


def work(item: int) -> int:
    """Square; 2 is wrong, 3 is a defect, 4 kills its worker, 5 takes its time."""
    if item == 2:
        try:
            raise KeyError(item)
        except KeyError as error:
            raise AnmiError("two is not allowed:\nuse another") from error
    if item == 3:
        return item // 0
    if item == 4:
        os._exit(9)
    if item == 5:
        time.sleep(0.3)
    return item * item


def where(_: int) -> tuple[str, str | None, int]:
    from tqdm import tqdm

    with tqdm(total=1, disable=False) as bar:
        return os.environ["OMP_NUM_THREADS"], os.environ.get("TQDM_DISABLE"), int(bar.disable)


@pytest.fixture(scope="module")
def engine() -> Engine:
    with LocalEngine(workers=2) as found:
        yield found


def test_failures_are_outcomes_and_lose_no_other_item(engine: Engine) -> None:
    found = {outcome.item: outcome for outcome in engine.map(work, [1, 2, 3, 4, 5, 6])}
    assert {item: outcome.result for item, outcome in found.items()} == {1: 1, 2: None, 3: None, 4: None, 5: 25, 6: 36}
    failures = {item: outcome.failure for item, outcome in found.items() if outcome.failure}
    assert failures[2].message == "two is not allowed: use another"
    assert failures[2].expected
    assert failures[3].message.startswith("ZeroDivisionError")
    assert "return item // 0" in failures[3].trace
    assert not failures[3].expected
    assert "killed" in failures[4].message
    # The pool that broke was replaced.
    assert [outcome.result for outcome in engine.map(work, [7])] == [49]


def test_workers_have_their_share_of_threads_and_draw_no_bars(engine: Engine) -> None:
    (outcome,) = engine.map(where, [1])
    assert outcome.result == ("1", None, 1)
    assert os.environ.get("OMP_NUM_THREADS") != "1" or "OMP_NUM_THREADS" in os.environ


def test_a_pool_needs_workers() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        LocalEngine(workers=0)


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from anmi.engine import LocalEngine\n"
        "def note(folder):\n"
        "    Path(folder, 'pid').write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    list(LocalEngine(workers=1).map(note, [sys.argv[1]]))\n"
    )
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    try:
        worker = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert wait_for(lambda: not is_alive(worker))


def wait_for(what, seconds: float = 20):  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:
        return False
    return state != "Z"


class Scaled:
    """Multiplies by the sum of an array, and tells who did it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __call__(self, item: int) -> tuple[int, int, bool]:
        if item == 13:
            # Until the other worker, who may still be starting, had its turn.
            time.sleep(2)
        return int(self.array.sum()) * item, os.getpid(), self.array.flags.writeable


class DiesOnce:
    """Kills its worker at one item, the first time somebody comes to it."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __call__(self, item: int) -> int:
        if item == 7 and not self.trace.exists():
            self.trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item


class DiesAlways:
    def __call__(self, item: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return item


def bytes_of(item: int) -> bytes:
    return bytes(item)


def test_ordered_results_come_in_order_from_workers_that_share_the_arrays(engine: LocalEngine) -> None:
    found = list(engine.ordered(Scaled(np.arange(1000)), [13, *range(20)]))
    assert [value for value, _, _ in found] == [499500 * item for item in [13, *range(20)]]
    workers = {pid for _, pid, _ in found}
    assert len(workers) == 2
    assert os.getpid() not in workers
    # Mapped from one file, so no worker can change what the others see.
    assert not any(writeable for _, _, writeable in found)


def test_ordered_goes_on_after_a_worker_was_lost(engine: LocalEngine, tmp_path: Path) -> None:
    assert list(engine.ordered(DiesOnce(tmp_path / "died"), range(20))) == list(range(20))
    assert (tmp_path / "died").exists()


def test_ordered_gives_up_on_an_item_that_kills_every_worker(engine: LocalEngine) -> None:
    with pytest.raises(AnmiError, match="killed 4 times at the same shard"):
        list(engine.ordered(DiesAlways(), range(3)))
    assert list(engine.ordered(abs, [-1])) == [1]


def test_ordered_tells_an_error_as_it_was(engine: LocalEngine) -> None:
    with pytest.raises(AnmiError, match="two is not allowed"):
        list(engine.ordered(work, [1, 2, 6]))


def test_ordered_takes_items_as_they_are_needed(engine: LocalEngine) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield 1000

    results = LocalEngine(workers=2, max_bytes=3000).ordered(bytes_of, items())
    for _ in range(10):
        next(results)
    # Room for three results of 1,000 bytes at a time.
    assert len(taken) <= 10 + 3
    results.close()


def test_few_items_need_no_other_process() -> None:
    with LocalEngine(workers=2, few=4) as engine:
        assert {pid for _, pid, _ in engine.ordered(Scaled(np.arange(3)), range(3))} == {os.getpid()}
        assert os.getpid() not in {pid for _, pid, _ in engine.ordered(Scaled(np.arange(3)), range(4))}


@with_torch
def thread_and_mean(item: int) -> tuple[int, int, str, bytes]:
    import torch

    time.sleep(0.05)
    values = torch.rand(200, 300, generator=torch.Generator().manual_seed(item))
    return os.getpid(), torch.get_num_threads(), threading.current_thread().name, (values @ values.T).numpy().tobytes()


def test_a_few_items_of_a_network_are_computed_by_threads_of_this_process_to_the_same_bytes() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with LocalEngine(workers=2, few=2) as engine, LocalEngine(workers=1) as alone:
        few, many = ([*engine.ordered(thread_and_mean, range(count))] for count in (3, 4))
        one = [*alone.ordered(thread_and_mean, range(4))]
    assert {row[0] for row in few} == {os.getpid()} and {row[1] for row in few} == {1}
    assert len({row[2] for row in few}) == 2 and threading.current_thread().name not in {row[2] for row in few}
    assert os.getpid() not in {row[0] for row in many}
    assert {row[2] for row in one} == {threading.current_thread().name}
    assert [row[3] for row in few] == [row[3] for row in one[:3]]
    assert [row[3] for row in many] == [row[3] for row in one]
    assert torch.get_num_threads() == before


@outside_python
def thread_and_product(item: int) -> tuple[int, str, bytes]:
    time.sleep(0.02)
    values = np.random.default_rng(item).random((200, 300), np.float32)
    return os.getpid(), threading.current_thread().name, (values @ values.T).tobytes()


def test_what_computes_outside_of_python_is_computed_by_threads_to_the_same_bytes() -> None:
    with LocalEngine(workers=2, few=1) as engine:
        few, many = ([*engine.ordered(thread_and_product, range(count))] for count in (15, 16))
    assert {row[0] for row in few} == {os.getpid()} and len({row[1] for row in few}) == 2
    assert os.getpid() not in {row[0] for row in many}
    assert [row[2] for row in few] == [row[2] for row in many[:15]]
