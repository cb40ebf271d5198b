"""What a store says it holds, and what goes when it is cleared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anmi.errors import AnmiError
from anmi.store import Store, cache, registry

DAY = 86_400
TEXTS = [f"text {i}" for i in range(300)]


def fill(store: Store, fingerprint: str, dimension: int, texts: list[str] = TEXTS, name: str = "") -> None:
    store.vectors(fingerprint, texts, lambda part: np.array([[float(t[5:])] * dimension for t in part]), name=name)


def holds(store: Store, fingerprint: str, dimension: int) -> bool:
    """Tell whether all values are there, and right; raises where only some are."""
    missing = store.missing(fingerprint, TEXTS)
    assert missing in (0, len(TEXTS)), f"{missing} of {fingerprint} are missing"
    if missing:
        return False
    found = store.vectors(fingerprint, TEXTS, lambda part: np.full((len(part), dimension), np.nan))
    assert found.tolist() == [[float(i)] * dimension for i in range(300)]
    return True


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the store's clock to so many days ago."""

    def set_clock(days_ago: float) -> None:
        from datetime import UTC, datetime, timedelta

        moment = (datetime.now(UTC) - timedelta(days=days_ago)).isoformat(timespec="seconds")
        monkeypatch.setattr(registry, "now", lambda: moment)

    return set_clock


def model(store: Store, name: str, days_ago: float, size: int = 1000) -> Path:
    folder = store.path / "models" / name
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"x" * size)
    for path in (folder / "weights", folder):
        os.utime(path, (time.time() - days_ago * DAY,) * 2)
    return folder


def test_stats_tell_what_is_there(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, "v1", 4, name="an encoder")
        fill(store, "v2", 1)
        fill(store, "v2", 1, [*TEXTS, "text 1000"])
        held = store.stats()
        by_fingerprint = {record.fingerprint: record for record in held.records}
        found = {f: (r.name, r.kind, r.dimension, r.entries, r.size) for f, r in by_fingerprint.items()}
        assert found == {
            "v1": ("an encoder", "embedding", 4, 300, 300 * (24 + 16)),
            "v2": ("", "judgment", 1, 301, 301 * (24 + 4)),
        }
        assert held.file_size == (tmp_path / "data.mdb").stat().st_size
        assert 0 <= held.free_size < held.file_size - sum(record.size for record in held.records)
        assert held.models == []


def test_use_is_noted_once_for_each_opened_store(tmp_path: Path, at: Callable[[float], None]) -> None:
    def used() -> tuple[str, str]:
        (record,) = store.records()
        return record.created, record.last_used

    at(30)
    with Store(tmp_path) as store:
        fill(store, "v1", 1)
        created, first = used()
        assert created == first
    at(20)
    with Store(tmp_path) as store:
        assert store.missing("v1", TEXTS) == 0
        assert used() == (created, first), "to ask what is missing is no use"
        fill(store, "v1", 1)
        second = used()[1]
        assert second > first
        at(10)
        fill(store, "v1", 1)
        assert used() == (created, second)
        fill(store, "v1", 1, ["text 1000"])
        assert used()[1] > second, "writing is noted with what is written"


def test_a_name_given_later_is_kept(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, "v1", 1)
    with Store(tmp_path) as store:
        fill(store, "v1", 1, name="cross_encoder")
    with Store(tmp_path) as store:
        fill(store, "v1", 1)
        assert [record.name for record in store.records()] == ["cross_encoder"]


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        ({}, "old other new"),
        ({"older_than_days": 30}, "new"),
        ({"older_than_days": 60}, "other new"),
        ({"older_than_days": 0}, ""),
        ({"older_than_days": 30, "keep": ["other"]}, "other new"),
        ({"fingerprints": ["new"]}, "old other"),
        ({"fingerprints": ["ne", "ol"]}, "other"),
        ({"fingerprints": ["new", "old"], "older_than_days": 30}, "other new"),
        ({"fingerprints": ["new", "old"], "keep": ["new"]}, "other new"),
    ],
)
def test_what_meets_all_conditions_goes(
    tmp_path: Path, at: Callable[[float], None], conditions: dict[str, object], left: str
) -> None:
    with Store(tmp_path) as store:
        for name, days, dimension in (("old", 90, 8), ("other", 40, 1), ("new", 3, 2)):
            at(days)
            fill(store, name, dimension)
        planned = store.prune(**conditions, dry_run=True)  # type: ignore[arg-type]
        assert len(store.records()) == 3
        done = store.prune(**conditions)  # type: ignore[arg-type]
        assert done.records == planned.records
        assert {record.fingerprint for record in store.records()} == set(left.split())
        for name, dimension in (("old", 8), ("other", 1), ("new", 2)):
            assert holds(store, name, dimension) == (name in left.split()), name
    with Store(tmp_path) as store:
        assert {record.fingerprint for record in store.records()} == set(left.split())


def test_the_file_gets_smaller_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, "large", 500)
        fill(store, "small", 1)
        done = store.prune(fingerprints=["large"])
        assert done.size_before > 600_000
        assert done.size_after == (tmp_path / "data.mdb").stat().st_size < 100_000
        assert holds(store, "small", 1)
        fill(store, "large", 500)
        assert holds(store, "large", 500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.mdb", "lock.mdb", "upkeep.lock", "users.lock"]
    with Store(tmp_path) as store:
        assert holds(store, "large", 500)
        assert holds(store, "small", 1)


@pytest.mark.parametrize("at_once", [1, 7, 299, 300, 301])
def test_values_go_in_several_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(cache, "_REMOVED_AT_ONCE", at_once)
    with Store(tmp_path) as store:
        for name in ("v1", "v2", "v3"):
            fill(store, name, 1)
        store.remove("v2")
        assert [holds(store, name, 1) for name in ("v1", "v2", "v3")] == [True, False, True]
        assert {record.fingerprint: record.entries for record in store.records()} == {"v1": 300, "v3": 300}


def test_an_interrupted_removal_leaves_a_right_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_REMOVED_AT_ONCE", 100)
    with Store(tmp_path) as store:
        fill(store, "v1", 1)
        save, saved = store.database.registry.save, []

        def interrupted(*arguments: object) -> None:
            saved.append(arguments)
            if len(saved) == 2:
                raise KeyboardInterrupt
            save(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store.database.registry, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.remove("v1")
        assert store.records()[0].entries == 300 - store.missing("v1", TEXTS) == 200


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nothing", 'no fingerprint "nothing"; .*Known: abcd, abef'),
        ("ab", "start of 2 fingerprints"),
        ("", "no finger"),
    ],
)
def test_a_fingerprint_that_names_none_or_several_is_refused(tmp_path: Path, given: str, message: str) -> None:
    with Store(tmp_path) as store:
        fill(store, "abcd", 1)
        fill(store, "abef", 1)
        for conditions in ({"fingerprints": [given]}, {"older_than_days": 0, "keep": [given]}):
            with pytest.raises(AnmiError, match=message):
                store.prune(**conditions)  # type: ignore[arg-type]
        assert len(store.records()) == 2


@pytest.mark.parametrize("days", [-1, float("nan"), 1e9])
def test_an_impossible_age_is_refused(tmp_path: Path, days: float) -> None:
    with Store(tmp_path) as store, pytest.raises(AnmiError, match="from 0 to 36500"):
        store.prune(older_than_days=days)


def test_models_that_nobody_uses_go(tmp_path: Path, at: Callable[[float], None]) -> None:
    with Store(tmp_path) as store:
        for name, days in (("teacher-idle", 90), ("teacher-busy", 90), ("static-256", 90), ("static-new", 3)):
            model(store, name, days)
        model(store, "mine", 90)
        model(store, ".teacher-killed", 2)
        model(store, ".static-at-work", 0.5)
        at(80)
        fill(store, "idle", 1)
        at(1)
        fill(store, "busy", 1)
        kinds = {each.path.name: each.kind for each in store.stats().models}
        assert {kinds[name] for name in ("teacher-idle", "teacher-busy")} == {"cross_encoder"}
        assert {kinds[name] for name in (".teacher-killed", ".static-at-work")} == {"leftover"}
        assert (kinds["static-256"], kinds["mine"]) == ("static", "other")
        assert all(each.size == 1000 for each in store.stats().models)

        assert [each.path.name for each in store.prune().models] == [".teacher-killed"]
        done = store.prune(older_than_days=60)
        assert [each.path.name for each in done.models] == ["static-256", "teacher-idle"]
        assert [record.fingerprint for record in done.records] == ["idle"]
        left = {path.name for path in (tmp_path / "models").iterdir()}
        assert left == {"teacher-busy", "static-new", "mine", ".static-at-work"}


def test_a_model_goes_with_its_fingerprint(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for name in ("teacher-aaa", "teacher-bbb", "static-256"):
            model(store, name, 0)
        fill(store, "aaa", 1)
        assert not store.prune(older_than_days=0, keep=["aaa", "bbb"], dry_run=True).records
        done = store.prune(fingerprints=["aaa", "bbb"])
        assert [each.path.name for each in done.models] == ["teacher-aaa", "teacher-bbb"]
        assert [path.name for path in (tmp_path / "models").iterdir()] == ["static-256"]


def test_a_copy_that_was_not_finished_is_a_leftover(tmp_path: Path) -> None:
    (tmp_path / ".compact-abc").mkdir()
    (tmp_path / ".compact-abc" / "data.mdb").write_bytes(b"half")
    os.utime(tmp_path / ".compact-abc" / "data.mdb", (1, 1))
    os.utime(tmp_path / ".compact-abc", (1, 1))
    with Store(tmp_path) as store:
        assert [each.path.name for each in store.prune().models] == [".compact-abc"]
    assert not (tmp_path / ".compact-abc").exists()
