"""benchmarks/results/claims.json: rows are of the recipes as they are today."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FIELDS = {
    "claim", "metric", "recipe", "over", "collection", "encoder", "bucket", "claimed", "measured", "low", "high", "p",
    "seeds", "fingerprint",
}  # fmt: skip


@pytest.fixture(scope="module")
def claims() -> ModuleType:
    spec = importlib.util.spec_from_file_location("claims", ROOT / "benchmarks" / "claims" / "__main__.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_are_of_the_recipes_as_they_are_today(claims: ModuleType) -> None:
    rows = json.loads(claims.RESULT.read_text(encoding="utf-8"))["rows"]
    assert rows
    for row in rows:
        assert row.keys() == FIELDS
        made = [claims.fingerprint(name) for name in (row["recipe"], row["over"]) if name not in ("", "zero_shot")]
        assert row["fingerprint"] == "-".join(made), f"measure {row['claim']} again: its recipe has changed"
        if row["measured"] is None:
            assert row["low"] is row["high"] is row["p"] is row["seeds"] is None
        elif row["low"] is not None:
            assert row["low"] <= row["measured"] <= row["high"] and 0 <= row["p"] <= 1


def test_a_fingerprint_goes_by_what_a_recipe_sets_and_not_by_its_name(claims: ModuleType) -> None:
    assert claims.fingerprint("naive_top") != claims.fingerprint("nv_retriever")
    assert claims.fingerprint("debiased") != claims.fingerprint("naive_top")
    assert claims.fingerprint("fixed_threshold") != claims.fingerprint("hard_threshold")


def test_every_recipe_as_published_that_claims_a_gain_has_a_row(claims: ModuleType) -> None:
    rows = json.loads(claims.RESULT.read_text(encoding="utf-8"))["rows"]
    published = {name for name in claims.recipes().names() if name.endswith("_as_published")}
    assert published <= {row["recipe"] for row in rows}


def test_the_page_shows_the_rows(claims: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "PAGE", tmp_path / "page.md")
    before = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    claims.PAGE.write_text(before, encoding="utf-8")
    claims.write_page(json.loads(claims.RESULT.read_text(encoding="utf-8"))["rows"])
    assert claims.PAGE.read_text(encoding="utf-8") == before
