"""The documentation of the options of training."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anmi.report.option_docs import TABLES, all_updated, end, start, table
from anmi.training.options import TrainingOptions

DOCUMENT = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_docs_list_every_kind_and_option_and_nothing_else() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert all_updated(text) == text, "run `python -m anmi.report.option_docs docs/training.md`"


@pytest.mark.parametrize("name", [name for name in TABLES if TABLES[name]])
def test_a_table_has_a_row_for_each_kind_and_each_parameter(name: str) -> None:
    made = table(name)
    assert re.findall(r"^\| \*\*`(\w+)`\*\*", made, re.M) == [kind.kind for kind in TABLES[name]]
    rows = re.findall(r"^\| \| `(\w+)` \|", made, re.M)
    assert rows == [field for kind in TABLES[name] for field in kind.model_fields]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in made.splitlines()} == {5}


def test_every_option_is_listed() -> None:
    assert re.findall(r"^\| `(\w+)` \|", table("options"), re.M) == list(TrainingOptions.model_fields)


def test_a_document_without_a_mark_is_refused() -> None:
    text = "".join(f"{start(name)}{end(name)}" for name in list(TABLES)[1:])
    with pytest.raises(ValueError, match="losses"):
        all_updated(text)
