"""A function over shards: the same bytes in order wherever it is worked on, and an error in one sentence."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from anmi.engine import IN_PROCESS, EngineParams, RayParams, map_shards
from anmi.errors import AnmiError

TWO = EngineParams(workers=2)
ON_RAY = EngineParams(kind="ray", workers=2)
ON_BOTH = pytest.mark.parametrize(
    "engine", [TWO, pytest.param(ON_RAY, marks=pytest.mark.rare)], ids=["joblib", "ray"]
)


def work(item: int) -> int:
    """Square; 2 is wrong, 3 is a defect, 4 kills its worker."""
    if item == 2:
        raise AnmiError("two is not allowed: use another")
    if item == 3:
        return item // 0
    if item == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


class Projected:
    """Products, whose last bits depend on the number of threads; who made them, of an array that may be written to."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def __call__(self, item: int) -> tuple[bytes, int, bool, str]:
        if item == 0:
            # Until the other worker, who may still be starting, had its turn.
            time.sleep(3)
        vector = np.random.default_rng(item).standard_normal(self.matrix.shape[1], np.float32)
        product, threads = (self.matrix @ vector).tobytes(), os.environ.get("OMP_NUM_THREADS", "")
        return product, os.getpid(), self.matrix.flags.writeable, threads


@pytest.fixture(autouse=True)
def ray(request: pytest.FixtureRequest) -> None:
    """Start Ray for the tests that need it: of this process, once."""
    if "ray" in request.node.name and request.node.get_closest_marker("rare"):
        ray = pytest.importorskip("ray")
        if not ray.is_initialized():
            options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
            ray.init(address="local", num_cpus=2, _node_ip_address="127.0.0.1", **options)


@ON_BOTH
def test_results_come_in_order_with_the_bytes_of_one_process(engine: EngineParams) -> None:
    function = Projected(np.random.default_rng(0).standard_normal((700, 501), np.float32))
    found = list(map_shards(engine, function, range(30)))
    expected = [row[0] for row in map_shards(IN_PROCESS, function, range(30))]
    assert [row[0] for row in found] == expected
    workers = {row[1] for row in found}
    assert len(workers) == 2 and os.getpid() not in workers
    assert {row[3] for row in found} == {"1"}
    assert not any(row[2] for row in found), "no worker can change what the others see"


@ON_BOTH
def test_an_error_comes_as_it_was_in_its_turn(engine: EngineParams) -> None:
    results = map_shards(engine, work, [1, 5, 2, 6])
    assert [next(results), next(results)] == [1, 25]
    with pytest.raises(AnmiError, match=r"^two is not allowed: use another$"):
        next(results)
    with pytest.raises(ZeroDivisionError):
        list(map_shards(engine, work, [3]))


@ON_BOTH
def test_a_lost_worker_is_told_in_one_sentence_and_the_next_call_works(
    engine: EngineParams,
) -> None:
    with pytest.raises(AnmiError, match=r"lower engine\.workers.*kedro anmi resume") as caught:
        list(map_shards(engine, work, [1, 4, 5]))
    assert "\n" not in str(caught.value)
    assert list(map_shards(engine, abs, [-1])) == [1]


@ON_BOTH
def test_items_are_taken_as_they_are_needed(engine: EngineParams) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = map_shards(engine, abs, items())
    for _ in range(10):
        next(results)
    assert len(taken) <= 10 + 4
    results.close()


@ON_BOTH
def test_a_call_may_feed_another(engine: EngineParams) -> None:
    squares = map_shards(engine, work, [1, 5, 6, 7, 8, 9])
    assert list(map_shards(engine, work, squares)) == [1, 625, 1296, 2401, 4096, 6561]


def of_a_network(item: int) -> tuple[int, int, str, bytes]:
    import torch

    time.sleep(0.05)
    values = torch.rand(200, 300, generator=torch.Generator().manual_seed(item))
    product = (values @ values.T).numpy().tobytes()
    return os.getpid(), torch.get_num_threads(), threading.current_thread().name, product


def of_numpy(item: int) -> tuple[int, int, str, bytes]:
    time.sleep(0.02)
    values = np.random.default_rng(item).random((200, 300), np.float32)
    return os.getpid(), 1, threading.current_thread().name, (values @ values.T).tobytes()


@pytest.mark.parametrize("function", [of_a_network, of_numpy])
def test_a_few_items_are_computed_by_threads_to_the_same_bytes(
    function: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    few, before = 15, torch.get_num_threads()
    in_threads, in_processes = (
        list(map_shards(EngineParams(), function, range(n))) for n in (few, few + 1)
    )
    one = list(map_shards(IN_PROCESS, function, range(few + 1)))
    assert {row[:2] for row in in_threads} == {(os.getpid(), 1)}
    assert len({row[2] for row in in_threads}) == 2
    assert os.getpid() not in {row[0] for row in in_processes}
    assert [row[3] for row in in_threads] == [row[3] for row in one[:few]]
    assert [row[3] for row in in_processes] == [row[3] for row in one]
    assert torch.get_num_threads() == before


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AnmiError, match=r'pip install "anmi-retrieval\[ray\]"'):
        list(map_shards(ON_RAY, abs, [1]))


@pytest.mark.rare
def test_a_cluster_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("ray"), "is_initialized", lambda: False)
    nowhere = EngineParams(kind="ray", ray=RayParams(address="127.0.0.1:1"))
    with pytest.raises(AnmiError, match=r"engine\.ray\.address 127\.0\.0\.1:1 \("):
        list(map_shards(nowhere, abs, [1]))
