"""Kedro refuses tables that another team handed over with the wrong columns or ids."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml
from kedro.io import DataCatalog
from kedro.validation.exceptions import DataValidationError
from tests.conftest import ROOT

QUERIES = pd.DataFrame(
    [["q1", "first", "train", "", ""], ["q2", "second", "dev", "", ""]],
    columns=["query_id", "text", "split", "metadata", "same_as"],
)


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        (QUERIES.drop(columns="text"), "no column text"),
        (QUERIES.assign(query_id="q1"), 'query_id "q1"'),
        (QUERIES.assign(query_id=["q1", None]), "query_id is empty in row 1"),
    ],
)
def test_tables_that_were_handed_over_are_checked_as_the_catalog_says(
    tmp_path: Path, queries: pd.DataFrame, words: str
) -> None:
    entries = yaml.safe_load((ROOT / "conf/base/catalog_ingestion.yml").read_text())
    path = tmp_path / "queries.parquet"
    entry = entries["queries"] | {"filepath": str(path), "versioned": False}
    queries.to_parquet(path)
    catalog = DataCatalog.from_config({"queries": entry})
    with pytest.raises(DataValidationError, match=words):
        catalog.load("queries")
    QUERIES.to_parquet(path)
    catalog.release("queries")
    pd.testing.assert_frame_equal(catalog.load("queries"), QUERIES)
