"""What the page says of the queries that were made of the corpus."""

from __future__ import annotations

from typing import Any

from anmi.report.html import render
from anmi.report.pseudo_queries import pseudo_queries

SUMMARY = {
    "documents": 3302,
    "held_out": 331,
    "kinds": {
        "title": {"made": 3302, "kept": 3000, "documents": 3000, "dropped": {"too_short": 300, "repeats": 2}},
        "cloze": {"made": 15_000, "kept": 15_000, "documents": 3302, "dropped": {}},
    },
}


def test_every_kind_has_a_row_with_its_reasons_the_most_frequent_first() -> None:
    found = pseudo_queries(SUMMARY)
    assert found is not None
    assert [row["dropped"] for row in found["rows"]] == ["too short 300, repeats 2", "–"]
    assert found["sentence"].startswith("18,000 pseudo-queries were made of 3,302 documents and kept. Those of 331 ")


def test_the_page_has_the_section_only_where_kinds_were_asked_for(make: Any) -> None:
    assert "What the corpus taught" in render(make(pseudo_queries=SUMMARY))
    for nothing in ({}, {"documents": 3, "held_out": 0, "kinds": {}}):
        assert "What the corpus taught" not in render(make(pseudo_queries=nothing))


def test_the_page_says_where_pseudo_queries_stand_in_for_labels(make: Any) -> None:
    assert "a weaker proof than labels" in render(make(test_queries="pseudo_queries"))
    assert "a weaker proof than labels" not in render(make())
