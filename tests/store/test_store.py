"""The store: what is computed once is read ever after, nothing wrong or half-written is read, and what is old goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.store import Store, cache


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.full((2, 1), np.nan), "2 rows for 2 texts, some of them NaN"),
        (np.full((2, 1), np.inf), "infinite"),
        (np.zeros((3, 1)), "3 rows for 2 texts"),
        (np.zeros((2, 0)), "no numbers for 2 texts"),
    ],
)
def test_a_broken_result_is_refused_and_not_stored(
    tmp_path: Path, result: np.ndarray, message: str
) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(AnmiError, match=message):
            store.vectors("v1", ["a", "b"], lambda _: result)
        assert store.missing("v1", ["a", "b"]) == 2


def test_a_store_of_another_format_or_that_is_open_already_is_refused_and_left_alone(
    tmp_path: Path,
) -> None:
    with Store(tmp_path), pytest.raises(AnmiError, match=r"already open.*close it"):
        Store(tmp_path)
    Store(tmp_path).close()
    with lmdb.open(str(tmp_path), max_dbs=2) as database, database.begin(write=True) as transaction:
        transaction.put(b"format", b"anmi-store-0")
    for _ in range(2):
        with pytest.raises(AnmiError, match=rf"{tmp_path} .*anmi-store-0.*delete .*data\.mdb"):
            Store(tmp_path)


@given(
    st.lists(st.lists(st.text(st.characters(), max_size=6), max_size=8), max_size=4),
    st.integers(1, 3),
)
def test_every_text_gets_its_own_value_whatever_it_holds(
    rounds: list[list[str]], batch: int
) -> None:
    """Against a plain dictionary; texts may hold separators, zero bytes and halves of surrogate pairs."""
    given_out: dict[str, float] = {}

    def number(texts: list[str]) -> np.ndarray:
        given_out.update((text, float(len(given_out) + place)) for place, text in enumerate(texts))
        return np.array([[given_out[text]] for text in texts], np.float32)

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        for texts in rounds:
            assert store.missing("v1", texts) == len(set(texts) - given_out.keys())
            found = store.vectors("v1", texts, number, batch)
            assert [row[0] for row in found.tolist()] == [given_out[text] for text in texts]
        assert len(store) == len(given_out)


def test_values_of_another_length_are_refused(tmp_path: Path) -> None:
    """Two of 2 and 4 numbers would fit a table of two rows of 3."""
    with Store(tmp_path) as store:
        store.vectors("v1", ["a"], lambda texts: np.ones((len(texts), 2)))
        with pytest.raises(AnmiError, match='"v1" gave 4 numbers for a text and 2 before'):
            store.vectors("v1", ["a", "b"], lambda texts: np.ones((len(texts), 4)))
        assert store.missing("v1", ["b"]) == 1


def hundred(texts: list[str]) -> np.ndarray:
    return np.array([[float(text)] * 100 for text in texts])


def test_texts_are_computed_longest_first_or_in_the_order_of_their_keys(tmp_path: Path) -> None:
    texts = ["a", "dddd", "bb", "ccc"]
    with Store(tmp_path) as store:
        for name, by_length in (("longest", True), ("keys", False)):
            order: list[str] = []

            def length(part: list[str], order: list[str] = order) -> np.ndarray:
                order.extend(part)
                return np.array([[len(text)] for text in part])

            vectors = store.vectors(name, texts, length, batch=1, longest_first=by_length)
            assert vectors[:, 0].tolist() == [1, 4, 2, 3]
            key = dict(zip(texts, store.keys(name, texts), strict=True))
            assert order == sorted(texts, key=lambda text: -len(text) if by_length else key[text])


def test_a_full_store_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    texts = [str(i) for i in range(1000)]
    with Store(tmp_path, size_limit=1 << 19) as store:
        with pytest.raises(AnmiError, match=r"full, it may hold 524,288 bytes: .* anmi prune"):
            store.vectors("v1", texts, hundred, batch=100)
        there = len(texts) - store.missing("v1", texts)
        assert 0 < there == len(store) < len(texts) and there % 100 == 0
    with Store(tmp_path) as store:
        assert store.vectors("v1", texts, hundred)[:, 99].tolist() == list(range(1000))


FULL_DISK = """
import resource, sys
from pathlib import Path
from typing import Any
import numpy as np
from anmi.errors import AnmiError
from anmi.store import Store

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
texts = [str(i) for i in range(2000)]
with Store(Path(sys.argv[1])) as store:
    try:
        store.vectors("v1", texts, lambda part: np.array([[float(text)] * 50 for text in part]), batch=100)
    except AnmiError as error:
        print(error)
    values = store.read(store.keys("v1", texts))
    there = {text: np.frombuffer(value, "f4") for text, value in zip(texts, values) if value is not None}
    print(len(there), all(value.tolist() == [float(text)] * 50 for text, value in there.items()))
    print(store.vectors("v1", [next(iter(there))], lambda part: 1 / 0).shape)
"""


def test_where_the_disk_takes_no_more_the_store_says_so_and_can_be_read(tmp_path: Path) -> None:
    """A limit of the system on the size of files fails a write as a full disk does."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    message, there, shape = done.stdout.splitlines()
    assert str(tmp_path) in message and "free space on its disk" in message
    assert there in [f"{count} True" for count in range(100, 2000, 100)]
    assert shape == "(1, 50)"


def noise(texts: list[str]) -> np.ndarray:
    """Numbers of which float16 keeps only a part."""
    return np.array([[int(text) + 1 / 3, 1 / (int(text) + 3)] for text in texts], np.float32)


@pytest.mark.parametrize("before", [None, "float16", "float32"])
def test_rounded_vectors_are_the_same_whenever_and_however_they_were_stored(
    tmp_path: Path, before: Any
) -> None:
    texts = [*map(str, range(40)), "7"]
    expected = noise(texts).astype(np.float16)
    if before:
        with Store(tmp_path) as store:
            store.vectors("v1", texts[20:], noise, number=before)
    with Store(tmp_path) as store:
        found = store.vectors("v1", texts, noise, batch=7, number="float16")
        (size,) = {len(value or b"") for value in store.read(store.keys("v1", texts))}
    assert np.array_equal(found, expected) and not np.array_equal(found, noise(texts))
    assert size == (8 if before == "float32" else 4)


def test_a_flipped_bit_is_computed_again_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [str(i) for i in range(40)]
    with Store(tmp_path) as store:
        expected = store.vectors("v1", texts, noise)
        with store._reading() as transaction:
            stored = [bytes(value) for _, value in transaction.cursor()]
    file, draw = tmp_path / "data.mdb", np.random.default_rng(0)
    for value in stored[:30]:
        place = int(draw.integers(len(value)))
        damaged = bytearray(value)
        damaged[place] ^= 1 << int(draw.integers(8))
        # In older pages, too, since a page is written anew with each change.
        file.write_bytes(file.read_bytes().replace(value, bytes(damaged)))
        with Store(tmp_path) as store:
            assert store.missing("v1", texts) == 1
            assert np.array_equal(store.vectors("v1", texts, noise), expected)
    assert caplog.text.count("1 values in the store") == 30
    with Store(tmp_path) as store, store._writing() as transaction:
        ((prefix, record),) = transaction.cursor(store._registry)
        damaged = record.replace(b'"dimension": 2', b'"dimension": 3')
        transaction.put(prefix, damaged, db=store._registry)
    with Store(tmp_path) as store:
        assert np.array_equal(store.vectors("v1", texts, noise), expected)
        assert store.missing("v1", texts) == 0


BATCH = 50
WRITER = f"""
import sys
from pathlib import Path
import numpy as np
from anmi.store import Store

def compute(texts):
    print(len(texts), flush=True)
    return np.array([[int(text)] * 33 for text in texts], np.float32)

Store(Path(sys.argv[1])).vectors("v1", [f"{{i:06d}}" for i in range(40_000)], compute, batch={BATCH})
"""


def test_a_killed_writer_loses_its_open_batch_at_most(tmp_path: Path) -> None:
    """Killed three times at another moment, each time going on where the one before was stopped."""
    texts = [f"{i:06d}" for i in range(40_000)]
    keys_before = 0
    # A process that has the store open all the while must not be held up by the dead.
    with Store(tmp_path) as store:
        for pause in (0.0, 0.0007, 0.0019):
            command = [sys.executable, "-c", WRITER, str(tmp_path)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
                assert writer.stdout is not None
                begun = [writer.stdout.readline() for _ in range(12)]
                time.sleep(pause)
                os.kill(writer.pid, signal.SIGKILL)
                begun += writer.stdout.readlines()
            # The next to write clears up: a batch whose commit was all but finished is there from
            # now on.
            ones = store.vectors("v2", [str(pause)], lambda part: np.ones((len(part), 1)))
            assert ones.tolist() == [[1]]
            values = zip(texts, store.read(store.keys("v1", texts)), strict=True)
            there = {text: np.frombuffer(v, np.float32) for text, v in values if v is not None}
            new = len(there) - keys_before
            assert new % BATCH == 0
            assert BATCH * (len(begun) - 1) <= new <= BATCH * len(begun)
            assert all(value.tolist() == [int(text)] * 33 for text, value in there.items())
            keys_before = len(there)


DAY = 86_400
TEXTS = [f"text {i}" for i in range(300)]


def fill(store: Store, fingerprint: str, dimension: int) -> None:
    store.vectors(
        fingerprint, TEXTS, lambda part: np.array([[float(t[5:])] * dimension for t in part])
    )


def holds(store: Store, fingerprint: str, dimension: int) -> bool:
    """Tell whether all values are there, and right; raises where only some are."""
    missing = store.read(store.keys(fingerprint, TEXTS)).count(None)
    assert missing in (0, len(TEXTS)), f"{missing} of {fingerprint} are missing"
    if missing:
        return False
    found = store.vectors(fingerprint, TEXTS, lambda part: np.full((len(part), dimension), np.nan))
    assert found.tolist() == [[float(i)] * dimension for i in range(300)]
    return True


@pytest.mark.parametrize("at_once", [100_000, 300, 7])
@pytest.mark.parametrize(("days", "left"), [(30, "new"), (60, "other new"), (0, "")])
def test_what_was_not_used_for_long_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, left: str, at_once: int
) -> None:
    monkeypatch.setattr(cache, "_REMOVED_AT_ONCE", at_once)
    clock, made = time.time, (("old", 90, 8), ("other", 40, 1), ("new", 3, 2))
    for name, age, dimension in made:
        with Store(tmp_path) as store, monkeypatch.context() as patch:
            patch.setattr(cache.time, "time", lambda age=age: clock() - age * DAY)
            fill(store, name, dimension)
    with Store(tmp_path) as store:
        assert store.prune(days) == (3 - len(left.split()), 0)
        assert {name for name, _, dimension in made if holds(store, name, dimension)} == set(
            left.split()
        )
        assert store.prune(2) == (0, 0), "reading is using"


def test_models_that_nobody_uses_go(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        ages = {"teacher-a": 40, "static-b": 3, "static-c": 40, "mine": 90}
        ages |= {".teacher-killed": 2, ".new": 0}
        for name, age in ages.items():
            folder = store.path / "models" / name
            folder.mkdir(parents=True)
            (folder / "weights").write_bytes(b"x")
            for path in (folder / "weights", folder):
                os.utime(path, (time.time() - age * DAY,) * 2)
        assert store.prune(30) == (0, 2)
        assert store.prune(0) == (0, 2), "what was used today may be in use"
        assert {path.name for path in (tmp_path / "models").iterdir()} == {".new", "mine"}
