"""The tables of an explanation."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from anmi.report.explanation import candidates_table, document_table

POSITIVE = {
    "document_id": "a.positive",
    "start": "does what is asked",
    "scores": {"dense": 0.8, "dense_rank": 1.0, "p_relevant": None},
}


def candidate(place: int, verdict: str, why: str, **changes: Any) -> dict[str, Any]:
    return {
        "place": place, "document_id": f"package.module.rather_long_name_{place}",
        "start": "密集检索 and further words " * 5, "source": ["bm25", "dense"],
        "scores": {"dense": 0.7, "dense_rank": 2.0 + place, "bm25": 12.5, "bm25_rank": 4.0, "p_relevant": 0.25}
        | {"elo": 1004.0, "elo_se": 88.5, "gap": 120.5, "gap_se": 90.5, "cross": 1.5, "odd": None, "coverage": 0.5},
        "verdict": verdict, "why": why, "weight": 0.5, "tier": None, "evidence": {"coverage": 1.25, "match": -2.0},
    } | changes  # fmt: skip


FOUND = {
    "positives": [POSITIVE], "count": 5,
    "candidates": [
        candidate(1, "unsafe", "max_ratio: dense ≥ 0.95 of the positive's (dense ≥ 0.76)"),
        candidate(2, "not drawn", "2 taken before it"), candidate(3, "negative", "choice 1 of 2, deeper"),
        candidate(4, "uncertain", "p_relevant 0.2…0.9"), candidate(5, "promoted", "promote: p_relevant ≥ 0.9"),
    ],
}  # fmt: skip


def printed(table: Any, width: int, colour: bool = False) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=colour, color_system="standard" if colour else None).print(table)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 150, 200, 300])
def test_the_table_fits_and_cuts_no_number_no_rule_and_no_id(width: int) -> None:
    shown = printed(candidates_table(FOUND, 20, width), width)
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    assert all(len(cells) == len(rows[0]) for cells in rows)
    columns = ["".join(cell.strip() for cell in cells) for cells in zip(*rows, strict=True)]
    for candidate in FOUND["candidates"]:
        assert candidate["document_id"] in columns[1]
        assert any(candidate["why"].replace(" ", "") in column.replace(" ", "") for column in columns)
    assert any("0.700#30.700#4" in column for column in columns)
    assert "…" not in "".join(columns[2:]).replace("0.2…0.9", "")


def test_the_first_are_shown_and_all_that_were_chosen() -> None:
    shown = printed(candidates_table(FOUND, 1, 200), 200)
    assert "name_1 " in shown
    assert "name_2 " not in shown
    assert "name_4 " not in shown
    assert all(f"name_{place} " in shown for place in (3, 5))
    assert "3 of 5 candidates shown" in shown
    assert "1 unsafe, 1 not drawn, 1 negative, 1 uncertain, 1 promoted" in shown


def test_everything_about_one_document_stands_beside_the_positive() -> None:
    shown = printed(document_table(FOUND, FOUND["candidates"][0]), 120)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    values = {name: rest for name, *rest in cells if name}
    assert values["document"] == ["package.module.rather_long_name_1", "a.positive"]
    assert values["dense"] == ["0.700", "0.800"]
    assert values["dense_rank"] == ["3", "1"]
    assert values["coverage"] == ["0.500 (+1.25 log-odds)", ""]
    assert values["why"][0] == "max_ratio: dense ≥ 0.95 of the positive's (dense ≥ 0.76)"
    assert values["place"][0] == "1 of 5"
    assert values["verdict"] == ["unsafe", "positive"]
