"""What is published: shares by coefficients that never saw the collection, and pages that its results made."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from anmi.judging.fused import shipped

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def fitted_name(collection: str) -> str | None:
    """Which of the collections of the shipped coefficients this is, by its name or by the end of its place."""
    return next((name for name in shipped()["without"] if f"/{collection.strip('/')}".endswith(f"/{name}")), None)


def refused(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return collection and recipe of the rows whose figures rest on a judge that saw the collection."""
    return [
        (row["collection"], row.get("recipe") or row.get("system") or row.get("judge", ""))
        for row in rows
        if (name := fitted_name(row["collection"].replace("kg_webnlg/graph", "kg_webnlg/beir_en"))) is not None
        and row.get("without") != name
    ]


def published(file: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / file).read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if {"false_negative_rate", "auc"} & set(row)]


def test_a_row_that_does_not_say_what_was_left_out_is_refused() -> None:
    row = {"collection": "scifact", "recipe": "anmi", "false_negative_rate": 0.05}
    assert refused([row]) == refused([row | {"without": None}]) == [("scifact", "anmi")]
    assert refused([row | {"without": "medquad"}]) == [("scifact", "anmi")]
    assert refused([row | {"without": "scifact"}, row | {"collection": "debian_packages"}]) == []


@pytest.mark.parametrize("file", ["mining_quality.json", "ablation.json"])
def test_published_figures_are_not_in_sample(file: str) -> None:
    rows = published(file)
    assert len(rows) > 50
    assert refused(rows) == []


def test_the_table_of_systems_is_that_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("benchmark_native", ROOT / "benchmarks" / "native.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = json.loads((RESULTS / "native.json").read_text(encoding="utf-8"))["rows"]
    for page, chosen, cell in (("README.md", module.MAIN, module.brief), ("docs/results.md", None, module.whole)):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.split(module.MARKS[0])[1].split(module.MARKS[1])[0] == module.table_of(rows, chosen, cell)


def test_the_table_of_recipes_is_that_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("benchmark_ablation", ROOT / "benchmarks" / "ablation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    document = json.loads((RESULTS / "ablation.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = text.split(module.MARKS[0])[1].split(module.MARKS[1])[0]
    assert table == module.page_table(document)
    # By hand: on the original labels of WebNLG all but two are significantly behind.
    column = [line.split("|")[5].strip() for line in table.splitlines()[2:]]
    level = sum("▼" not in value for value in column)
    assert level == sum(
        row["p_holm"] is None or row["p_holm"] >= 0.05 or row["difference"] > 0
        for row in document["rows"] if row["collection"] == "kg_webnlg/beir_en" and row["judgments"] == "original"
    )  # fmt: skip
    assert level < len(column)
