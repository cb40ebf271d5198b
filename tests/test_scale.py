"""docs/production.md shows what benchmarks/scale.py measured, and made collections can be mined by it."""

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
    document = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    assert scale.written(document, scale.tables(RESULT)) == document
