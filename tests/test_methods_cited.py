"""Every section of docs/methods.md that something cites is there, and is of what the code does."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import yaml

ROOT = Path(__file__).parents[1]
METHODS = ROOT / "docs" / "methods.md"
CITED = re.compile(r"methods(?:\.md)?,?\s+§(\d+(?:\.\d+|[a-z])?)")
PLACES = {"src": "*.py", "tests": "*.py", "docs": "*.md", "conf": "*.yml", "benchmarks": "*.py"}


@pytest.fixture(scope="module")
def sections() -> set[str]:
    return set(
        re.findall(r"^#{2,3} (\d+(?:\.\d+|[a-z])?)\.? ", METHODS.read_text(encoding="utf-8"), re.M)
    )


def test_every_section_that_is_cited_exists(sections: set[str]) -> None:
    cited = [
        (path.relative_to(ROOT).as_posix(), section)
        for folder, names in PLACES.items()
        for path in (ROOT / folder).rglob(names)
        for section in CITED.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(cited) > 40
    assert not [(file, section) for file, section in cited if section not in sections]


def test_within_the_document_sections_are_cited_by_their_number(sections: set[str]) -> None:
    assert (
        set(re.findall(r"§(\d+(?:\.\d+|[a-z])?)", METHODS.read_text(encoding="utf-8"))) <= sections
    )


@pytest.fixture(scope="module")
def draw() -> Any:
    path = ROOT / "docs" / "images" / "draw.py"
    spec = importlib.util.spec_from_file_location("docs_draw", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["docs_draw"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_drawn_by_the_script_and_shown(draw: Any) -> None:
    shown = {
        name
        for path in METHODS.parent.glob("*.md")
        for name in re.findall(r"images/(\w+)\.svg", path.read_text())
    }
    assert {picture.__name__ for picture in draw.PICTURES} <= shown
    assert all((METHODS.parent / "images" / f"{name}.svg").exists() for name in shown)


def test_the_picture_of_false_negatives_has_the_measured_points(draw: Any) -> None:
    with mpl.rc_context(draw.STYLE):
        first = draw.clean_and_hard().axes[0]
    rows = [
        r
        for r in draw._results("mining_quality.json")["rows"]
        if r["collection"] == "kg_webnlg/beir_en"
    ]
    (expected,) = [
        (row["gap"], 100 * row["leak"]) for row in rows if row.get("recipe") == "nv_retriever"
    ]
    (line,) = [
        line for line in first.get_lines() if line.get_label() == "below 95 % of the positive"
    ]
    assert line.get_xydata().tolist() == [list(expected)]


def test_the_promises_of_the_reports_name_files_and_recipes_that_are_there() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    _, _, after = page.partition("## Promises of the reports")
    table, _, _ = after.partition("\n## ")
    names = re.findall(r"`((?:\w+/)+\w+\.py)`", table)
    assert len(names) > 40
    places = (ROOT, ROOT / "src" / "anmi")
    assert not [name for name in names if not any((place / name).is_file() for place in places)]
    recipes = yaml.safe_load((ROOT / "conf/base/recipes.yml").read_text(encoding="utf-8"))[
        "recipes"
    ]
    named = re.findall(r"`((?:anmi|hans|dnh|sparse)_\w+)`", table)
    assert named
    assert not set(named) - recipes.keys()
    assert "not yet" not in table
