"""The store: what is computed once is read ever after, and nothing wrong or half-written is ever read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import lmdb
import numpy as np
import pytest

from anmi.errors import AnmiError
from anmi.store import Store, digest


class Lengths:
    """Computes (length, number of words) and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), len(text.split())] for text in texts], np.float32)


def expected(texts: Sequence[str]) -> list[list[float]]:
    return [[len(text), len(text.split())] for text in texts]


def test_only_what_is_missing_is_computed_and_order_and_repeats_are_kept(tmp_path: Path) -> None:
    compute, texts = Lengths(), ["bb", "a", "ccc d", "a"]
    with Store(tmp_path) as store:
        assert store.missing("v1", texts) == 3
        assert store.vectors("v1", texts, compute).tolist() == expected(texts)
        assert sorted(compute.asked) == ["a", "bb", "ccc d"]
        assert store.vectors("v1", ["new", *texts], compute).tolist() == expected(["new", *texts])
        assert compute.asked[3:] == ["new"]
        assert store.missing("v1", texts) == 0


def test_a_reopened_store_still_has_everything(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.vectors("v1", ["a", "b b"], Lengths())
    compute = Lengths()
    with Store(tmp_path) as store:
        assert store.vectors("v1", ["b b", "a"], compute).tolist() == expected(["b b", "a"])
    assert compute.asked == []


def test_another_fingerprint_misses(tmp_path: Path) -> None:
    compute = Lengths()
    with Store(tmp_path) as store:
        store.vectors("v1", ["a"], compute)
        store.vectors("v2", ["a"], compute)
    assert compute.asked == ["a", "a"]


def test_the_longest_texts_are_computed_first(tmp_path: Path) -> None:
    compute = Lengths()
    with Store(tmp_path) as store:
        store.vectors("v1", ["a", "ccc", "bb"], compute)
    assert compute.asked == ["ccc", "bb", "a"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda texts: np.full((len(texts), 1), np.nan), "NaN"),
        (lambda texts: np.zeros((len(texts) + 1, 1)), "3 rows for 2 texts"),
    ],
)
def test_a_broken_result_is_refused_and_not_stored(tmp_path: Path, bad: object, message: str) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(AnmiError, match=message):
            store.vectors("v1", ["a", "b"], bad)  # type: ignore[arg-type]
        assert store.missing("v1", ["a", "b"]) == 2


def test_batches_before_a_failure_are_kept(tmp_path: Path) -> None:
    def fails_on_short(texts: list[str]) -> np.ndarray:
        return np.array([[np.nan if len(text) == 1 else 1.0] for text in texts], np.float32)

    with Store(tmp_path) as store:
        with pytest.raises(AnmiError):
            store.vectors("v1", ["a", "bb", "ccc"], fails_on_short, batch=1)
        assert store.missing("v1", ["a", "bb", "ccc"]) == 1


def test_no_texts_give_no_rows(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert len(store.vectors("v1", [], Lengths())) == 0


def test_a_store_of_another_format_is_refused_with_its_path_and_left_alone(tmp_path: Path) -> None:
    database = lmdb.open(str(tmp_path))
    with database.begin(write=True) as transaction:
        transaction.put(b"format", b"anmi-store-0")
    database.close()
    for _ in range(2):
        with pytest.raises(AnmiError, match=r"anmi-store-0.*delete .*data\.mdb") as caught:
            Store(tmp_path)
        assert str(tmp_path) in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(AnmiError, match="could not be opened"):
        Store(tmp_path)


def test_borders_of_the_parts_of_a_key_count() -> None:
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", "")}) == 4


FILLER = """
import sys
from pathlib import Path
import numpy as np
from anmi.store import Store

texts = Path(sys.argv[2]).read_text().splitlines()
with Store(Path(sys.argv[1])) as store:
    for start in range(0, len(texts), 20):
        part = texts[start : start + 20]
        found = store.vectors("v1", part, lambda batch: np.array([[len(t), len(t.split())] for t in batch], "f4"), 7)
        assert found.tolist() == [[len(t), len(t.split())] for t in part]
"""


def test_two_processes_fill_one_store_at_once(tmp_path: Path) -> None:
    texts = [f"text {'x' * (i % 17)} {i}" for i in range(400)]
    workers = []
    for name, part in (("up", texts), ("down", texts[::-1])):
        (tmp_path / name).write_text("\n".join(part))
        command = [sys.executable, "-c", FILLER, str(tmp_path / "store"), str(tmp_path / name)]
        workers.append(subprocess.Popen(command))
    assert [worker.wait(60) for worker in workers] == [0, 0]
    compute = Lengths()
    with Store(tmp_path / "store") as store:
        assert store.vectors("v1", texts, compute).tolist() == expected(texts)
    assert compute.asked == []


WRITER = """
import sys, time
from pathlib import Path
import numpy as np
from anmi.store import Store

def compute(texts):
    print(texts[0], flush=True)
    time.sleep(0.01)
    return np.array([[len(text)] for text in texts], np.float32)

Store(Path(sys.argv[1])).vectors("v1", [f"{i:05d}" for i in range(100_000)], compute, batch=10)
"""


def test_a_killed_writer_loses_its_open_batch_at_most(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        begun = [writer.stdout.readline() for _ in range(20)]
        time.sleep(0.005)
        os.kill(writer.pid, signal.SIGKILL)
        begun += writer.stdout.readlines()
    texts = [f"{i:05d}" for i in range(100_000)]
    with Store(tmp_path) as store:
        stored = len(texts) - store.missing("v1", texts)
        assert stored % 10 == 0
        assert 10 * (len(begun) - 1) <= stored <= 10 * len(begun)
        assert store.vectors("v1", texts[:5], lambda t: np.full((len(t), 1), 5.0, np.float32)).tolist() == [[5.0]] * 5
        assert store.missing("v1", ["one more"]) == 1
