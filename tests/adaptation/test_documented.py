"""docs/training.md lists the kinds and the reasons that there are."""

from __future__ import annotations

import re
from pathlib import Path

from anmi.adaptation.kinds import KINDS
from anmi.adaptation.make import reasons

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_docs_list_every_kind() -> None:
    table = TEXT.partition("<!-- kinds -->")[2].partition("<!-- end of kinds -->")[0]
    assert re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.M) == [*KINDS]


def test_the_docs_list_every_reason() -> None:
    table = TEXT.partition("### Filters")[2].partition("\n### ")[0]
    listed = [name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)]
    described = (reasons.__doc__ or "").partition("Returns")[2]
    assert listed == re.findall(r"``(\w+)``", described)
