"""What goes when a store is cleared."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from anmi import store as cache
from anmi.store import Store

DAY = 86_400
TEXTS = [f"text {i}" for i in range(300)]


def fill(store: Store, fingerprint: str, dimension: int) -> None:
    store.vectors(fingerprint, TEXTS, lambda part: np.array([[float(t[5:])] * dimension for t in part]))


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
        assert {name for name, _, dimension in made if holds(store, name, dimension)} == set(left.split())
        assert store.prune(2) == (0, 0), "reading is using"


def test_models_that_nobody_uses_go(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        ages = {"teacher-a": 40, "static-b": 3, "static-c": 40, ".teacher-killed": 2, ".new": 0, "mine": 90}
        for name, age in ages.items():
            folder = store.path / "models" / name
            folder.mkdir(parents=True)
            (folder / "weights").write_bytes(b"x")
            for path in (folder / "weights", folder):
                os.utime(path, (time.time() - age * DAY,) * 2)
        assert store.prune(30) == (0, 2)
        assert store.prune(1) == (0, 2)
        assert {path.name for path in (tmp_path / "models").iterdir()} == {".new", "mine"}
