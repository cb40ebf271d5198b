"""Tables that many nodes read are read once, and no node sees what another does to its copy."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from kedro.io.core import DatasetError

from anmi.datasets import TableDataset


@pytest.fixture
def dataset(tmp_path: Path) -> TableDataset:
    made = TableDataset(filepath=str(tmp_path / "table.parquet"))
    made.save(pd.DataFrame({"name": ["a", "b"], "number": [1, 2]}))
    return made


def test_what_a_node_does_to_a_table_reaches_no_other(dataset: TableDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dataset.load()
    # What is read from now on would fail.
    monkeypatch.setattr(pd, "read_parquet", None)
    first.loc[0, "number"] = 7
    first["more"] = 1
    second = dataset.load()
    assert second.columns.tolist() == ["name", "number"] and second.number.tolist() == [1, 2]


def test_a_table_is_read_anew_after_it_was_saved_or_released(dataset: TableDataset, tmp_path: Path) -> None:
    assert dataset.load().number.tolist() == [1, 2]
    dataset.discard()
    dataset.save(pd.DataFrame({"number": [3]}))
    assert dataset.load().number.tolist() == [3]
    pd.DataFrame({"number": [4]}).to_parquet(tmp_path / "table.parquet")
    assert dataset.load().number.tolist() == [3]
    dataset.release()
    assert dataset.load().number.tolist() == [4]


def test_a_large_table_is_read_each_time(dataset: TableDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anmi.datasets.files._SMALL", 0)
    assert dataset.load().number.tolist() == [1, 2]
    monkeypatch.setattr(pd, "read_parquet", None)
    with pytest.raises(DatasetError):
        dataset.load()
