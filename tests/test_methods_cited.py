"""Every section of docs/methods.md that something cites is there, and is of what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
METHODS = ROOT / "docs" / "methods.md"
CITED = re.compile(r"methods(?:\.md)?,?\s+§(\d+(?:\.\d+|[a-z])?)")
PLACES = {"src": "*.py", "tests": "*.py", "docs": "*.md", "conf": "*.yml", "benchmarks": "*.py"}


@pytest.fixture(scope="module")
def sections() -> set[str]:
    return set(re.findall(r"^#{2,3} (\d+(?:\.\d+|[a-z])?)\.? ", METHODS.read_text(encoding="utf-8"), re.M))


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
    assert set(re.findall(r"§(\d+(?:\.\d+|[a-z])?)", METHODS.read_text(encoding="utf-8"))) <= sections


def test_a_citation_may_be_broken_over_lines_and_name_a_letter() -> None:
    assert CITED.findall("(methods\n§4's), methods §3.2; methods.md §5b; methods, §6.") == ["4", "3.2", "5b", "6"]
