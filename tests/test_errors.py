"""Hints in error messages."""

from __future__ import annotations

from anmi.errors import nearest


def test_the_closest_name_is_suggested() -> None:
    assert nearest("max_ration", ["margin", "max_ratio", "top"]) == (
        'did you mean "max_ratio"? Known: margin, max_ratio, top'
    )


def test_without_a_close_name_only_the_known_ones_are_listed_sorted() -> None:
    assert nearest("xyz", ["top", "margin"]) == "Known: margin, top"
