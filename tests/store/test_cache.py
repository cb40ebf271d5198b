"""The store: what is computed once is read ever after, and nothing wrong or half-written is ever read."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.store import Store


def expected(texts: Sequence[str]) -> list[list[float]]:
    return [[len(text), len(text.split())] for text in texts]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda texts: np.full((len(texts), 1), np.nan), "2 rows for 2 texts, some of them NaN"),
        (lambda texts: np.full((len(texts), 1), np.inf), "infinite"),
        (lambda texts: np.zeros((len(texts) + 1, 1)), "3 rows for 2 texts"),
        (lambda texts: np.zeros((len(texts) - 1, 1)), "1 rows for 2 texts"),
        (lambda texts: np.zeros((len(texts), 0)), "no numbers for 2 texts"),
    ],
)
def test_a_broken_result_is_refused_and_not_stored(tmp_path: Path, bad: object, message: str) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(AnmiError, match=message):
            store.vectors("v1", ["a", "b"], bad)  # type: ignore[arg-type]
        assert store.missing("v1", ["a", "b"]) == 2


def test_a_store_of_another_format_is_refused_with_its_path_and_left_alone(tmp_path: Path) -> None:
    database = lmdb.open(str(tmp_path))
    with database.begin(write=True) as transaction:
        transaction.put(b"format", b"anmi-store-0")
    database.close()
    for _ in range(2):
        with pytest.raises(AnmiError, match=r"anmi-store-0.*delete .*data\.mdb") as caught:
            Store(tmp_path)
        assert str(tmp_path) in str(caught.value)


def test_a_store_that_is_open_already_is_not_called_damaged(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(AnmiError, match=r"already open.*close it"):
        Store(tmp_path)
    Store(tmp_path).close()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.text(st.characters(), max_size=6), max_size=8), max_size=4), st.integers(1, 3))
def test_every_text_gets_its_own_value_whatever_it_holds(rounds: list[list[str]], batch: int) -> None:
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


def test_a_full_store_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    texts = [str(i) for i in range(1000)]
    with Store(tmp_path, size_limit=1 << 19) as store:
        with pytest.raises(AnmiError, match=r"full, it may hold 524,288 bytes: run `kedro anmi store prune`"):
            store.vectors("v1", texts, lambda part: np.array([[float(text)] * 100 for text in part]), batch=100)
        there = len(texts) - store.missing("v1", texts)
        assert 0 < there < len(texts)
        assert there % 100 == 0
        assert len(store) == there
    with Store(tmp_path) as store:
        found = store.vectors("v1", texts, lambda part: np.array([[float(text)] * 100 for text in part]))
        assert found[:, 99].tolist() == list(range(1000))


FULL_DISK = """
import resource, sys
from pathlib import Path
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
    assert str(tmp_path) in message
    assert "could not be read or written" in message
    assert "free space on its disk" in message
    assert there in [f"{count} True" for count in range(100, 2000, 100)]
    assert shape == "(1, 50)"


def noise(texts: list[str]) -> np.ndarray:
    """Numbers of which float16 keeps only a part."""
    return np.array([[int(text) + 1 / 3, 1 / (int(text) + 3)] for text in texts], np.float32)


def test_rounded_vectors_are_the_same_now_and_later_and_take_half_the_room(tmp_path: Path) -> None:
    texts = [str(i) for i in range(40)] + ["7"]
    with Store(tmp_path) as store:
        whole = store.vectors("v1", texts, noise)
        first = store.vectors("v2", texts[20:], noise, number="float16")
        again = store.vectors("v2", texts, noise, batch=7, number="float16")
        sizes = [len(store.read(store.keys(name, texts[:1]))[0] or b"") for name in ("v1", "v2")]
    assert not np.array_equal(again, whole)
    assert np.array_equal(again, whole.astype(np.float16).astype(np.float32))
    assert np.array_equal(again[20:], first)
    assert sizes == [8, 4]


def test_vectors_stored_as_float32_give_the_values_of_those_stored_as_float16(tmp_path: Path) -> None:
    texts = [str(i) for i in range(10)]
    with Store(tmp_path) as store:
        expected = noise(texts).astype(np.float16)
        store.vectors("v1", texts[:6], noise)
        assert np.array_equal(store.vectors("v1", texts, noise, number="float16"), expected)
        assert store.missing("v1", texts) == 0
        assert len(store) == 10
    with Store(tmp_path) as store:
        assert np.array_equal(store.vectors("v1", texts, noise, number="float16"), expected)


def test_a_flipped_bit_is_computed_again_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = [str(i) for i in range(40)]
    with Store(tmp_path) as store:
        expected = store.vectors("v1", texts, noise)
        with store._reading() as transaction:
            stored = [bytes(value) for _, value in transaction.cursor()]
    file, draw = tmp_path / "data.mdb", np.random.default_rng(0)
    for value in stored[:30]:
        place = int(draw.integers(len(value)))
        other = value[:place] + bytes([value[place] ^ 1 << int(draw.integers(8))]) + value[place + 1 :]
        # In older pages, too, since a page is written anew with each change.
        file.write_bytes(file.read_bytes().replace(value, other))
        with Store(tmp_path) as store:
            assert store.missing("v1", texts) == 1
            assert np.array_equal(store.vectors("v1", texts, noise), expected)
    assert caplog.text.count("1 values in the store") == 30
    with Store(tmp_path) as store, store._writing() as transaction:
        ((prefix, record),) = transaction.cursor(store._registry)
        transaction.put(prefix, record.replace(b'"dimension": 2', b'"dimension": 3'), db=store._registry)
    with Store(tmp_path) as store:
        assert np.array_equal(store.vectors("v1", texts, noise), expected)
        assert store.missing("v1", texts) == 0
