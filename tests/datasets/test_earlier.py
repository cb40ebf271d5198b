"""What an earlier run saved: the newest, as far as all that belongs to it is there, here and in a bucket."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from kedro.io import DataCatalog
from kedro.io.core import DatasetError, Version

from anmi.candidates import Candidates
from anmi.datasets import CandidateShardsDataset, EarlierDataset, FolderDataset, JsonDataset, TableDataset
from anmi.selection.plan import MiningRecord

ONE, TWO, THREE = (f"2026-01-0{day}T00.00.00.000Z" for day in (1, 2, 3))
FRAME = pd.DataFrame({"id": ["a", "b"], "digest": ["1", "2"]})
NUMBERS = itertools.count()


def block() -> Candidates:
    return Candidates(
        query_ids=np.array(["q0", "q1"]),
        positives=np.array([[9], [8]], np.int32),
        documents=np.array([[1, 2], [3, -1]], np.int32),
        source=np.ones((2, 2), np.uint8),
        columns={"dense": np.array([[0.5, 0.25], [0.5, np.nan]], np.float32)},
    )


@pytest.fixture(params=["local", "memory"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A folder on this machine, or a prefix of a bucket."""
    return str(tmp_path) if request.param == "local" else f"memory://bucket/earlier-{next(NUMBERS)}"


def saved(kind: type, filepath: str, data: Any, version: str = ONE) -> None:
    kind(filepath=filepath, version=Version(None, version)).save(data)


def opened(filepath: str, load: str | None = None, **options: Any) -> EarlierDataset:
    """As the catalog makes it for a run of its own version."""
    return EarlierDataset(filepath=filepath, version=Version(load, THREE), **options)


def test_what_an_earlier_run_left_is_read_and_never_written(tmp_path: Path) -> None:
    place = f"{tmp_path}/x.json"
    earlier = EarlierDataset(filepath=place, version=Version(None, TWO))
    assert earlier.load() == {}
    assert earlier.resolve_load_version() is None
    JsonDataset(filepath=place, version=Version(None, ONE)).save({"a": 1})
    again = EarlierDataset(filepath=place, version=Version(None, TWO))
    assert (again.load(), again.resolve_load_version()) == ({"a": 1}, ONE)
    with pytest.raises(DatasetError, match="saved under another name"):
        again.save({"a": 2})


def test_a_table_is_read_as_it_was_saved_and_none_where_there_is_none(place: str) -> None:
    options: dict[str, Any] = {"of": "anmi.datasets.TableDataset"}
    assert opened(f"{place}/x.parquet", **options).load() is None
    for version, data in ((ONE, FRAME), (TWO, FRAME.iloc[::-1].reset_index(drop=True))):
        saved(TableDataset, f"{place}/x.parquet", data, version)
        pd.testing.assert_frame_equal(opened(f"{place}/x.parquet", **options).load(), data)
    pd.testing.assert_frame_equal(opened(f"{place}/x.parquet", load=ONE, **options).load(), FRAME)


def test_candidates_are_read_as_they_were_saved_and_none_where_there_are_none(place: str) -> None:
    options: dict[str, Any] = {"of": "anmi.datasets.CandidateShardsDataset"}
    assert opened(f"{place}/selection", **options).load() is None
    saved(CandidateShardsDataset, f"{place}/selection", block())
    found = opened(f"{place}/selection", **options).load()
    assert [part.to_table() for part in found] == [block().to_table()]
    assert [list(part.columns) for part in found.only()] == [[]], "what is not asked for is not read"


def test_the_record_of_a_mining_is_there_with_its_selection_and_not_without(place: str) -> None:
    record = MiningRecord(FRAME.assign(kind="document"), "s", {"documents": 1, "queries": 0}, {"teacher": {}})
    options: dict[str, Any] = {
        "of": "anmi.datasets.FolderDataset",
        "loader": "anmi.selection.plan.MiningRecord.load",
        "together": [f"{place}/selection"],
    }
    saved(FolderDataset, f"{place}/mining_record", record)
    assert opened(f"{place}/mining_record", **options).load() is None, "its selection was pruned"
    saved(CandidateShardsDataset, f"{place}/selection", block())
    found = opened(f"{place}/mining_record", **options).load()
    assert (found.settings, found.since_all, found.fits) == (record.settings, record.since_all, record.fits)
    assert found.documents == ["a", "b"]


def test_candidates_of_which_the_upload_did_not_end_are_absent_and_so_is_what_belongs_to_them() -> None:
    place = f"memory://bucket/earlier-{next(NUMBERS)}"
    saved(CandidateShardsDataset, f"{place}/selection", block())
    saved(JsonDataset, f"{place}/x.json", {"run": 1})
    options: dict[str, Any] = {"together": [f"{place}/selection"]}
    assert opened(f"{place}/x.json", **options).load() == {"run": 1}
    fsspec.filesystem("memory").rm(f"{place.removeprefix('memory://bucket')}/selection/{ONE}/selection/_complete")
    assert opened(f"{place}/x.json", **options).load() == {}
    assert opened(f"{place}/selection", of="anmi.datasets.CandidateShardsDataset").load() is None


def test_what_belongs_to_it_must_be_of_the_same_run(place: str) -> None:
    places = {name: f"{place}/{name}" for name in ("changes.json", "selection")}
    options: dict[str, Any] = {"together": list(places.values())}

    def found() -> Any:
        return opened(f"{place}/x.json", **options).load()

    assert found() == {}
    saved(JsonDataset, f"{place}/x.json", {"run": 1})
    assert found() == {}, "nothing else is there"
    saved(JsonDataset, places["changes.json"], {})
    assert found() == {}, "a folder is missing"
    saved(CandidateShardsDataset, places["selection"], block())
    assert found() == {"run": 1}
    assert opened(f"{place}/x.json", **options).exists()

    # The next run is killed after one of them.
    saved(JsonDataset, places["changes.json"], {}, TWO)
    assert found() == {}, "another is newer"
    saved(JsonDataset, f"{place}/x.json", {"run": 2}, TWO)
    assert found() == {}, "another is older, and this one is of no use alone"
    saved(CandidateShardsDataset, places["selection"], block(), TWO)
    assert found() == {"run": 2}


def test_a_table_that_does_not_belong_to_the_others_is_none(place: str) -> None:
    saved(TableDataset, f"{place}/x.parquet", FRAME, TWO)
    saved(JsonDataset, f"{place}/changes.json", {}, ONE)
    options: dict[str, Any] = {"of": "anmi.datasets.TableDataset", "together": [f"{place}/changes.json"]}
    dataset = opened(f"{place}/x.parquet", **options)
    assert (dataset.load(), dataset.resolve_load_version()) == (None, None)


@pytest.mark.parametrize("other", [None, TWO])
def test_who_asks_for_a_version_by_name_is_given_it(place: str, other: str | None) -> None:
    for version in (ONE, TWO):
        saved(JsonDataset, f"{place}/x.json", version, version)
    if other:
        saved(JsonDataset, f"{place}/changes.json", {}, other)
    entry = {
        "x": {
            "type": "anmi.datasets.EarlierDataset",
            "filepath": f"{place}/x.json",
            "together": [f"{place}/changes.json"],
            "versioned": True,
        }
    }
    assert DataCatalog.from_config(entry, load_versions={"x": ONE}, save_version=THREE).load("x") == ONE
    assert DataCatalog.from_config(entry, save_version=THREE).load("x") == (TWO if other else {})


def test_it_stays_that_of_the_earlier_run_while_this_run_saves_its_own(place: str) -> None:
    for name in ("x.json", "changes.json"):
        saved(JsonDataset, f"{place}/{name}", {"run": 1})
    dataset = opened(f"{place}/x.json", together=[f"{place}/changes.json"])
    assert dataset.load() == {"run": 1}
    for name in ("x.json", "changes.json"):
        # A node further on reads it again.
        saved(JsonDataset, f"{place}/{name}", {"run": 3}, THREE)
        assert (dataset.load(), dataset.resolve_load_version()) == ({"run": 1}, ONE)


def test_what_this_run_saved_in_a_try_before_does_not_count(place: str) -> None:
    saved(JsonDataset, f"{place}/x.json", {"run": 1}, ONE)
    saved(JsonDataset, f"{place}/x.json", {"run": 3}, THREE)
    saved(JsonDataset, f"{place}/y.json", {"run": 1}, ONE)
    assert opened(f"{place}/x.json", together=[f"{place}/y.json"]).load() == {"run": 1}
    saved(JsonDataset, f"{place}/y.json", {"run": 3}, THREE)
    assert opened(f"{place}/y.json", together=[f"{place}/x.json"]).load() == {"run": 1}
