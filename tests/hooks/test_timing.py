"""What is noted of each node of a run, with Kedro's own runner and a real store."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kedro.framework.hooks.manager import _create_hook_manager
from kedro.io import DataCatalog
from kedro.pipeline import Node, Pipeline
from kedro.runner import SequentialRunner

from anmi.datasets import StoreDataset, TableDataset
from anmi.hooks import RunHooks, RunRecord


def encode(store: Any, texts: list[str]) -> pd.DataFrame:
    vectors = store.vectors("v1", texts, lambda batch: np.array([[len(text)] for text in batch], np.float32))
    return pd.DataFrame(vectors)


def test_an_entry_has_rows_and_what_the_store_had(tmp_path: Path) -> None:
    pipeline = Pipeline([
        Node(lambda store: encode(store, ["a", "bb", "a"]), "store", "first", name="first"),
        Node(lambda store, _: encode(store, ["a", "bb", "ccc"]), ["store", "first"], "second", name="second"),
        Node(lambda _: None, "second", None, name="reader"),
    ])  # fmt: skip
    catalog = DataCatalog({
        "store": StoreDataset(filepath=str(tmp_path / "store")),
        **{name: TableDataset(filepath=str(tmp_path / f"{name}.parquet")) for name in ("first", "second")},
    })  # fmt: skip
    record, manager = RunRecord(), _create_hook_manager()
    hooks = RunHooks(record)
    hooks._root = str(tmp_path)
    manager.register(hooks)
    hooks.before_pipeline_run(run_params={"run_id": "1"}, pipeline=pipeline, catalog=catalog)
    SequentialRunner().run(pipeline, catalog, hook_manager=manager)
    hooks.after_pipeline_run()
    assert json.loads((tmp_path / "runs/1/run.json").read_text())["nodes"] == record.nodes
    counts = [{name: entry.get(name) for name in ("node", "of", "rows", "asked", "found")} for entry in record.nodes]
    assert counts == [
        # Repeated texts are asked for once.
        {"node": "first", "of": "first", "rows": 3, "asked": 2, "found": 0},
        {"node": "second", "of": "second", "rows": 3, "asked": 3, "found": 2},
        {"node": "reader", "of": None, "rows": None, "asked": None, "found": None},
    ]
