"""docs/scale.md shows what benchmarks/scale.py computes, and its formulas do what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


plan, scale = load("scale_plan"), load("scale")
RESULT = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text(encoding="utf-8"))


def test_the_document_shows_the_tables_that_the_script_prints() -> None:
    document = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert scale.written(document, plan.tables(RESULT)) == document


def test_a_document_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="hours"):
        scale.written("<!-- sizes -->\n<!-- /sizes -->", {"sizes": "", "hours": ""})


def test_growth_is_per_document_and_stages_grow_as_they_should() -> None:
    constants = plan.Constants(RESULT)
    first, *_, last = RESULT["growth"]["bm25"]
    more = last["documents"] - first["documents"]
    assert first["file_bytes"] + constants.index_file * more == pytest.approx(last["file_bytes"])

    one = plan.stages(constants, plan.BILLION)
    twice = plan.stages(constants, replace(plan.BILLION, queries=2e7, rows=2.12e7))
    assert twice["BM25 search"].today == pytest.approx(2 * one["BM25 search"].today)
    assert twice["cross-encoder (if the recipe asks)"].gpu.high == pytest.approx(
        2 * one["cross-encoder (if the recipe asks)"].gpu.high
    )
    assert twice["BM25 index"].today == one["BM25 index"].today
    assert all(stage.core.low <= stage.core.high and stage.gpu.low <= stage.gpu.high for stage in one.values())


def test_a_shallower_search_loses_more() -> None:
    for run in RESULT["runs"].values():
        lost = [run["negatives"]["lost_at_depth"][depth] for depth in ("500", "200", "100")]
        assert lost == sorted(lost)
        assert all(
            share <= beyond for share, beyond in zip(lost, run["negatives"]["bm25_rank_beyond"].values(), strict=True)
        )


def test_what_assumed_and_measured_say_stays_apart() -> None:
    tables = plan.tables(RESULT)
    for name, (low, high, *_) in plan.ASSUMED.items():
        assert f"| {name} |" in tables["assumed"]
        assert name == "busy" or not low > high
    assert {"date", "machine", "versions", "runs", "growth", "quality"} <= RESULT.keys()
