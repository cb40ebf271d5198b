"""Ray, really started: same results as local workers, whatever becomes of its own."""

from __future__ import annotations

import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from anmi.engine import EngineParams, LocalEngine, Parts, RayParams, running
from anmi.engine.on_ray import RayEngine
from anmi.errors import AnmiError

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray")


# What another process gets that knows nothing of the Ray of this one.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("RAY")}
LOSE = """
import logging, time
import numpy as np, ray
from ray.cluster_utils import Cluster
from anmi.engine import EngineParams, RayParams
from anmi.engine.on_ray import RayEngine

class Where:
    def __init__(self, array):
        self.array = array

    def __call__(self, item):
        time.sleep(0.05)
        return int(self.array[item]), ray.get_runtime_context().get_node_id(), bytes(300_000)

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
engine = RayEngine(EngineParams(kind="ray", ray=RayParams(address=cluster.address)))
values, machines, lost_at = [], [], 0
for value, machine, _ in engine.ordered(Where(np.arange(100_000)), range(60)):
    values.append(value)
    machines.append(machine)
    if not lost_at and len(set(machines)) == 2:
        cluster.remove_node(second, allow_graceful=False)
        lost_at = len(values)
assert values == list(range(60)), values
workers = engine.workers
engine.close()
print(f"{workers} workers, {len(values)} results in order, {len(set(machines))} machines, "
      f"{len(set(machines[lost_at + 4:]))} at the end", flush=True)
cluster.shutdown()
"""
# Ray hands out the GPU that a machine says it has; whether there is one, only the encoder notices, which then takes the
# processor.
SHARE = """
import os, sys, time, ray
from pathlib import Path
from ray.cluster_utils import Cluster
from anmi.engine import EngineParams, RayParams
from anmi.engine.on_ray import RayEngine
from anmi.engine.threads import limited
from anmi.retrieval.encoding import Encoding
from anmi.retrieval.prompts import OWN

def who(item):
    time.sleep(0.3)
    return os.getpid(), ray.get_gpu_ids()

head = {"num_cpus": 4, "num_gpus": 1, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
share = RayParams(address=cluster.address, cpus_per_worker=0.5, gpus_per_worker=0.5)
engine = RayEngine(EngineParams(kind="ray", ray=share))
seen, until = {}, time.monotonic() + 60
while len(seen) < 2 and time.monotonic() < until:
    seen |= dict(engine.ordered(who, range(6)))
on = {str(gpu) for gpus in seen.values() for gpu in gpus}
free = ray.available_resources().get("GPU", 0.0)
encoding = Encoding("minilm", Path(sys.argv[1]), 64, OWN, "float32", 8, "document")
texts = [[f"text {number} " + "of some words " * (number % 7) for number in range(start, start + 8)]
         for start in range(0, 64, 8)]
there = [vectors.tobytes() for vectors in engine.ordered(encoding, texts)]
workers = engine.workers
engine.close()
with limited(1):
    here = [encoding(some).tobytes() for some in texts]
print(f"{workers} workers, {len(seen)} at work on GPU {sorted(on)}, {free:g} left, "
      f"{sum(map(bytes.__eq__, here, there))} of {len(here)} batches alike", flush=True)
ray.shutdown()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    with RayEngine(EngineParams(kind="ray", workers=2, max_bytes=1 << 20, ray=RayParams(retries=1))) as found:
        yield found


class Projected:
    """Sums of products, whose last bits depend on the number of threads, and who made them from what."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def __call__(self, item: np.ndarray) -> tuple[np.ndarray, bytes, int]:
        return self.matrix @ item, np.argsort(self.matrix @ item).tobytes(), os.getpid()


class Seen:
    """Where the array lies in memory, whether it can be written to, and how often this copy was called."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.calls = array, 0

    def __call__(self, item: int) -> tuple[int, bool, int, str, str]:
        self.calls += 1
        address = self.array.__array_interface__["data"][0]
        # Lines of the memory map: "from-to rights offset device inode path".
        mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        (file,) = [
            parts[4] for parts in mapped if int(parts[0].split("-")[0], 16) <= address < int(parts[0].split("-")[1], 16)
        ]
        if item == 0:
            time.sleep(0.5)
        return os.getpid(), self.array.flags.writeable, self.calls, file, os.environ["OMP_NUM_THREADS"]


class DiesOnce:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __call__(self, item: int) -> int:
        if item == 7 and not self.trace.exists():
            self.trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item


def work(item: int) -> int:
    """Square; 2 is wrong, 3 is a defect, 4 kills its worker."""
    if item == 2:
        raise AnmiError("two is not allowed: use another")
    if item == 3:
        return item // 0
    if item == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def slowly(item: int) -> tuple[int, int]:
    time.sleep(0.1)
    return item, os.getpid()


@dataclass(frozen=True)
class Part:
    """Sums an array with a request; 4 kills who holds it, the first time."""

    array: np.ndarray
    trace: Path

    def __call__(self, request: int) -> tuple[int, int, bool]:
        if request == 4 and not self.trace.exists():
            self.trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(self.array.sum()) + request, os.getpid(), self.array.flags.writeable


@dataclass(frozen=True)
class Asking:
    """Asks parts, and tells by whom it was done and what of them it has."""

    parts: Any

    def __call__(self, item: int) -> tuple[list[tuple[int, int, bool]], int, int]:
        return self.parts(item), os.getpid(), len(pickle.dumps(self.parts))


def bytes_of(item: int) -> bytes:
    return bytes(item)


def arrays_of(item: int) -> dict[str, Any]:
    return {"array": np.full(200_000, item), "more": [np.zeros(200_000)]}


def test_results_are_those_of_local_workers_bit_for_bit(engine: RayEngine) -> None:
    random = np.random.default_rng(0)
    function = Projected(random.standard_normal((700, 501), np.float32))
    items = [random.standard_normal(501, np.float32) for _ in range(40)]
    on_ray = list(engine.ordered(function, items))
    with LocalEngine(workers=2) as local:
        there = list(local.ordered(function, items))
    assert [(scores.tobytes(), order) for scores, order, _ in on_ray] == [
        (scores.tobytes(), order) for scores, order, _ in there
    ]
    # Forty products are nothing: the worker that started first may have made them all.
    assert os.getpid() not in {pid for _, _, pid in on_ray}


def test_a_function_is_sent_once_and_its_arrays_are_shared(engine: RayEngine) -> None:
    found = list(engine.ordered(Seen(np.zeros(1_000_000)), range(12)))
    workers = {pid for pid, *_ in found}
    assert len(workers) == 2
    assert not any(writeable for _, writeable, *_ in found)
    assert {file for *_, file, _ in found} != {"0"}, "mapped memory has a file behind it"
    assert len({file for *_, file, _ in found}) == 1, "and it is one file for all workers"
    assert {threads for *_, threads in found} == {"1"}
    # Each worker keeps the instance, and what this may make of its arrays.
    assert sum(max(calls for pid, _, calls, *_ in found if pid == worker) for worker in workers) == 12


def test_each_part_is_held_once_and_workers_hold_none(engine: RayEngine, tmp_path: Path) -> None:
    parts = tuple(Part(np.full(1_000_000, number), tmp_path / f"{number}") for number in range(3))
    (tmp_path / "0").touch()
    (tmp_path / "2").touch()
    with LocalEngine(workers=1) as local:
        (tmp_path / "1").touch()
        expected = [[value for value, *_ in each] for each, *_ in local.ordered(Asking(Parts(parts)), range(6))]
        (tmp_path / "1").unlink()
    found = list(engine.ordered(Asking(Parts(parts)), range(6)))
    assert [[value for value, *_ in each] for each, *_ in found] == expected
    holders = [{pid for _, pid, _ in answers} for answers in zip(*(each for each, *_ in found), strict=True)]
    # Who held the second was killed, and another was asked again.
    assert [len(pids) for pids in holders] == [1, 2, 1]
    assert len(set.union(*holders)) == 4
    assert not set.union(*holders) & {pid for _, pid, _ in found}
    assert max(size for *_, size in found) < 10_000
    assert not any(writeable for each, *_ in found for *_, writeable in each)


def test_arrays_of_results_belong_to_the_caller(engine: RayEngine) -> None:
    (found,) = engine.ordered(arrays_of, [3])
    found["array"][0] = 5
    found["more"][0][0] = 5
    assert found["array"][:2].tolist() == [5, 3]


def test_an_error_comes_as_it_was_in_its_turn(engine: RayEngine) -> None:
    results = engine.ordered(work, [1, 5, 2, 6])
    assert [next(results), next(results)] == [1, 25]
    with pytest.raises(AnmiError) as caught:
        next(results)
    assert type(caught.value) is AnmiError
    assert str(caught.value) == "two is not allowed: use another"
    with pytest.raises(ZeroDivisionError) as other:
        list(engine.ordered(work, [3]))
    assert type(other.value) is ZeroDivisionError
    assert "return item // 0" in str(other.value.__cause__)


@pytest.mark.rare
def test_a_worker_that_kills_itself_is_replaced(engine: RayEngine, tmp_path: Path) -> None:
    assert list(engine.ordered(DiesOnce(tmp_path / "died"), range(20))) == [item * item for item in range(20)]
    assert (tmp_path / "died").exists()


@pytest.mark.rare
def test_a_worker_that_is_killed_from_outside_is_replaced(engine: RayEngine) -> None:
    found = []
    for item, pid in engine.ordered(slowly, range(16)):
        found.append((item, pid))
        if item == 4:
            os.kill(pid, signal.SIGKILL)
    assert [item for item, _ in found] == list(range(16))
    (killed,) = {pid for item, pid in found if item == 4}
    # What it had finished by then still counts; nothing more came of it.
    assert killed not in {pid for item, pid in found if item > 10}


@pytest.mark.rare
def test_it_gives_up_on_an_item_that_kills_every_worker(engine: RayEngine) -> None:
    with pytest.raises(AnmiError, match="lost 2 times at the same shard") as caught:
        list(engine.ordered(work, [1, 4, 5]))
    assert "\n" not in str(caught.value)
    assert list(engine.ordered(abs, [-1])) == [1]


@pytest.mark.rare
def test_workers_who_died_in_between_cost_no_item_a_try(engine: RayEngine) -> None:
    with RayEngine(EngineParams(kind="ray", workers=1, ray=RayParams(retries=0))) as another:
        (pid,) = {pid for _, pid in another.ordered(slowly, range(2))}
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        assert list(another.ordered(work, [1, 5])) == [1, 25]
    assert list(engine.ordered(work, [1, 5])) == [1, 25], "the connection is the first one's"


def test_items_are_taken_as_they_are_needed(engine: RayEngine) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield 300_000

    results = engine.ordered(bytes_of, items())
    for _ in range(10):
        assert len(next(results)) == 300_000
    # Room for three results of 300,000 bytes in a MiB.
    assert len(taken) <= 10 + 3
    results.close()
    assert list(engine.ordered(abs, [-1])) == [1]


def test_a_call_may_feed_another(engine: RayEngine) -> None:
    squares = engine.ordered(work, [1, 5, 6, 7, 8, 9])
    assert list(engine.ordered(work, squares)) == [1, 625, 1296, 2401, 4096, 6561]


@pytest.mark.rare
def test_it_listens_on_loopback_only_and_asks_for_a_token(engine: RayEngine) -> None:
    list(engine.ordered(abs, [1, 2, 3, 4]))
    processes = [process for process in psutil.Process().children(recursive=True) if process.is_running()]
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in [*processes, psutil.Process()]
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    address = ray.get_runtime_context().gcs_address
    stranger = (
        "import sys\nfrom ray._raylet import GcsClient\n"
        "try:\n    GcsClient(address=sys.argv[1]).internal_kv_keys(b'', b'')\n"
        "except Exception as error:\n    print(type(error).__name__)\nelse:\n    print('let in')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", stranger, address], env=CLEAN, capture_output=True, text=True, check=False, timeout=60
    )
    assert "let in" not in done.stdout
    assert "AuthenticationError" in done.stdout, done.stdout + done.stderr


@pytest.mark.rare
def test_ray_outlives_the_thread_that_asked_for_it_and_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, sys, threading, time\n"
        "from anmi.engine import EngineParams, running\n"
        "def use():\n"
        "    print(list(running(EngineParams(kind='ray', workers=1)).ordered(abs, [-1, -2])), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    for _ in range(2):\n"
        "        thread = threading.Thread(target=use)\n"
        "        thread.start()\n"
        "        thread.join()\n"
        "        time.sleep(0.5)\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    # Ray's sockets need a short path, which the test's own folder is not.
    folder = tempfile.mkdtemp(prefix="t", dir="/tmp")
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=CLEAN | {"TMPDIR": folder}
    )
    assert parent.stdout is not None
    try:
        assert [parent.stdout.readline().strip() for _ in range(3)] == ["[1, 2]", "[1, 2]", "ready"]
        # Ray's two agents end too, but only after asking its dead store for a minute.
        children = [
            child for child in psutil.Process(parent.pid).children(recursive=True) if "Agent" not in child.name()
        ]
        assert {"raylet", "gcs_server", "ray::ShardWorker"} <= {child.name() for child in children}
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.rare
def test_no_cluster_at_the_address_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "import sys\nfrom anmi.engine import EngineParams, RayParams, running\nfrom anmi.errors import AnmiError\n"
        "for address in sys.argv[1:]:\n"
        "    try:\n        running(EngineParams(kind='ray', ray=RayParams(address=address)))\n"
        "    except AnmiError as error:\n        print(error)\n"
    )
    # Not `auto`, which finds whatever Ray runs on this machine.
    addresses = [f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"]
    done = subprocess.run(
        [sys.executable, "-c", code, *addresses], env=CLEAN, capture_output=True, text=True, check=True, timeout=120
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stdout
    for address, line in zip(addresses, lines, strict=True):
        assert line.startswith(f"no Ray cluster can be reached at engine.ray.address {address} (")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AnmiError, match=r'pip install "anmi\[ray\]"'):
        running(EngineParams(kind="ray", workers=3))


def test_a_gpu_that_is_not_there_is_told_at_once(engine: RayEngine) -> None:
    with pytest.raises(AnmiError, match="gpus_per_worker is 99"):
        RayEngine(EngineParams(kind="ray", ray=RayParams(gpus_per_worker=99)))


def ended(script: str, folder: Path) -> list[str]:
    """Run a script with a cluster of its own, given a folder, and return what it printed."""
    path = folder / "cluster.py"
    path.write_text(script)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, str(path), str(folder)],
        env=CLEAN | token,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.rare
def test_a_machine_of_a_cluster_may_be_lost(tmp_path: Path) -> None:
    """Two machines, played by two sets of processes; the one that goes has a worker and finished results."""
    assert "2 workers, 60 results in order, 2 machines, 1 at the end" in ended(LOSE, tmp_path)


@pytest.mark.rare
def test_workers_share_a_gpu_by_fractions_and_encode_as_one_process_does(tmp_path: Path) -> None:
    assert "2 workers, 2 at work on GPU ['0'], 0 left, 8 of 8 batches alike" in ended(SHARE, tmp_path)
