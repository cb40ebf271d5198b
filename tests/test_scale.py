"""docs/scale.md shows what benchmarks/scale.py measured, and made collections can be mined by it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from anmi.candidates import SOURCES, Candidates, CandidateShards

ROOT = Path(__file__).parents[1]
RESULT = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
        assert spec and spec.loader
        module = sys.modules["scale"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


def test_the_document_shows_the_tables_of_what_was_measured(scale: ModuleType) -> None:
    document = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert scale.written(document, scale.tables(RESULT)) == document


def test_a_document_without_a_place_for_a_table_is_refused(scale: ModuleType) -> None:
    with pytest.raises(ValueError, match="depth"):
        scale.written("<!-- nodes -->\n<!-- /nodes -->", {"nodes": "", "depth": ""})


def test_slopes_are_the_powers_by_which_nodes_grow(scale: ModuleType) -> None:
    def run(documents: int) -> dict[str, object]:
        nodes = {"linear": {"cpu": documents / 7}, "square": {"cpu": documents**2 * 1e-9}}
        return {"documents": documents, "nodes": nodes | ({"late": {"cpu": 1.0}} if documents > 50_000 else {})}

    # The first is too small to tell.
    runs = [run(documents) for documents in (10, 30_000, 100_000, 1_000_000)]
    assert scale.slope(runs, "linear", "cpu") == pytest.approx(1)
    assert scale.slope(runs, "square", "cpu") == pytest.approx(2)
    assert scale.slope(runs[:3], "late", "cpu") is None


def test_a_stopped_run_is_summed_up_as_one(scale: ModuleType) -> None:
    runs = [{**RESULT["runs"][0], "whole": False, "documents": 1_000_000, "queries": 100_000}]
    rows = scale.summed_up(runs)
    assert [row["goal"] for row in rows] == [900.0, None, 8192.0]
    assert all(f"stopped after {list(runs[0]['nodes'])[-1]}" in row["note"] for row in rows)


def test_what_a_shallower_search_loses_is_what_nothing_else_finds(scale: ModuleType, tmp_path: Path) -> None:
    bm25, dense = SOURCES["bm25"], SOURCES["dense"]
    block = Candidates(
        query_ids=np.array(["kept", "dropped"]),
        positives=np.array([[9], [9]], np.int32),
        documents=np.array([[1, 2, 3, 4, 5, 6]] * 2, np.int32),
        source=np.array([[bm25, bm25, bm25 | dense, dense, bm25, dense]] * 2, np.uint8),
        columns={"bm25_rank": np.array([[150, 600, 700, 900, 1000, np.nan]] * 2, np.float32)},
        verdict=np.array([[1, 1, 1, 1, 0, 1]] * 2, np.int16),
        query_verdict=np.array([0, 2], np.int16),
        legend=("open", "negative", "consistency"),
    )
    (tmp_path / "part-00000.parquet").write_bytes(block.to_bytes())
    found = scale.negatives(CandidateShards.read([tmp_path / "part-00000.parquet"]))
    assert found == {
        "count": 5, "beyond_200": 0.8, "lost_at_depth": {"500": 0.2, "200": 0.2, "100": 0.4},
    }  # fmt: skip
