"""Several real processes on one store: at once, killed in the middle, and while the file is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from anmi.store import Store

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


def refuse(texts: list[str]) -> np.ndarray:
    raise AssertionError(f"{len(texts)} values are missing")


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_two_processes_fill_one_store_at_once(tmp_path: Path) -> None:
    texts = [f"text {'x' * (i % 17)} {i}" for i in range(400)]
    workers = []
    for name, part in (("up", texts[:300]), ("down", texts[:99:-1])):
        (tmp_path / name).write_text("\n".join(part))
        workers.append(python(FILLER, tmp_path / "store", tmp_path / name))
    for worker in workers:
        worker.communicate(timeout=60)
    assert [worker.returncode for worker in workers] == [0, 0]
    with Store(tmp_path / "store") as store:
        found = store.vectors("v1", texts, refuse)
        assert found.tolist() == [[len(text), len(text.split())] for text in texts]
        assert len(store) == len(texts)


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
            with python(WRITER, tmp_path) as writer:
                assert writer.stdout is not None
                begun = [writer.stdout.readline() for _ in range(12)]
                time.sleep(pause)
                os.kill(writer.pid, signal.SIGKILL)
                begun += writer.stdout.readlines()
            # The next to write clears up: a batch whose commit was all but finished is there from now on.
            assert store.vectors("v2", [str(pause)], lambda part: np.ones((len(part), 1))).tolist() == [[1]]
            values = store.read(store.keys("v1", texts))
            there = {text: np.frombuffer(v, np.float32) for text, v in zip(texts, values, strict=True) if v is not None}
            new = len(there) - keys_before
            assert new % BATCH == 0
            assert BATCH * (len(begun) - 1) <= new <= BATCH * len(begun)
            assert all(value.tolist() == [int(text)] * 33 for text, value in there.items())
            keys_before = len(there)


HOLDER = """
import sys
from pathlib import Path
import numpy as np
from anmi.store import Store

with Store(Path(sys.argv[1])) as store:
    print("open", flush=True)
    for _ in sys.stdin:
        print(store.vectors("v1", ["a", "b"], lambda part: np.full((len(part), 1), 7.0))[:, 0].tolist(), flush=True)
"""


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with Store(tmp_path) as store:
        texts = ["a", "b", *(str(i) for i in range(3000))]
        store.vectors("v1", texts, lambda part: np.ones((len(part), 1)))
        store.vectors("v2", texts, lambda part: np.full((len(part), 64), 2.0))
    (tmp_path / "models" / "static-1").mkdir(parents=True)
    return tmp_path


def test_values_go_while_another_process_has_it_open(filled: Path) -> None:
    with python(HOLDER, filled) as other, Store(filled) as store:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        assert store.prune(older_than_days=0) == (2, 0)
        assert (filled / "models" / "static-1").is_dir(), "what was used today may be in use"
        assert len(store) == 0
        print("go on", file=other.stdin, flush=True)
        assert other.stdout.readline() == "[7.0, 7.0]\n", "the other misses what is gone and computes it again"
        other.communicate(timeout=30)
        assert store.vectors("v1", ["a", "b"], refuse)[:, 0].tolist() == [7, 7]
