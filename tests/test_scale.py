"""docs/scale.md shows what benchmarks/scale.py computes, and its formulas do what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from anmi.candidates import SOURCES, Candidates, CandidateShards

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


growth, plan, scale = load("scale_growth"), load("scale_plan"), load("scale")
RESULT = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text(encoding="utf-8"))


def test_the_document_shows_the_tables_that_the_script_prints() -> None:
    document = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert scale.written(document, plan.tables(RESULT)) == document


def test_a_document_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="hours"):
        scale.written("<!-- sizes -->\n<!-- /sizes -->", {"sizes": "", "hours": ""})


def test_plan_prints_the_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["scale.py", "plan"])
    scale.main()
    printed = capsys.readouterr().out
    assert all(text in printed for text in plan.tables(RESULT).values())


def test_what_a_shallower_search_loses_is_what_nothing_else_finds(tmp_path: Path) -> None:
    bm25, dense = SOURCES["bm25"], SOURCES["dense"]
    block = Candidates(
        query_ids=np.array(["kept", "dropped"]),
        positives=np.array([[9], [9]], np.int32),
        documents=np.array([[1, 2, 3, 4, 5]] * 2, np.int32),
        source=np.array([[bm25, bm25, bm25 | dense, dense, bm25]] * 2, np.uint8),
        columns={
            "bm25_rank": np.array([[150, 600, 700, 900, 1000]] * 2, np.float32),
            "dense_rank": np.array([[400, 300, 2, 1, 3]] * 2, np.float32),
        },
        verdict=np.array([[1, 1, 1, 1, 0]] * 2, np.int16),
        query_verdict=np.array([0, 2], np.int16),
        legend=("open", "negative", "consistency"),
    )
    (tmp_path / "part-00000.parquet").write_bytes(block.to_bytes())
    found = scale.negatives(CandidateShards.read([tmp_path / "part-00000.parquet"]))
    assert found["count"] == 4
    assert found["lost_at_depth"] == {"500": 0.25, "200": 0.25, "100": 0.5}
    assert found["bm25_rank_beyond"] == {"500": 0.75, "200": 0.75, "100": 1.0}
    assert found["dense_rank_beyond_100"] == 0.5
    assert scale.slots_at_depth(tmp_path) == {"500": 3.0, "200": 3.0, "100": 2.0}
    sizes = scale.block_sizes(tmp_path)
    assert (sizes["rows"], sizes["slots"], sizes["measurements"], sizes["ids_and_ranks"]) == (2, 10, 2, 3)
    assert 0 < sizes["id_and_rank_bytes"] < sizes["bytes"]


def test_growth_is_measured_on_the_parts_of_the_pipeline(tmp_path: Path) -> None:
    words = " ".join(f"word{number % 97}" for number in range(400))
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"text": words}) + "\n", encoding="utf-8")
    found: dict[str, float] = {}
    growth.PARTS["bm25"](1_100, tmp_path, found)
    assert found["postings"] <= 1_100 * growth.RUNS * growth.RUN_WORDS
    assert found["file_bytes"] > 8 * found["postings"]
    assert found["search_seconds"] > 0
    assert found["rank_seconds"] > 0


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
