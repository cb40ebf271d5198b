"""docs/scale.md shows what benchmarks/scale.py measured, and made collections can be mined by it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

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
    with pytest.raises(ValueError, match="nodes"):
        scale.written("# A page", {"nodes": ""})


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
