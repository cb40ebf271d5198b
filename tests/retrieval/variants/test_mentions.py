"""Names are found where they stand as a whole, the longest first."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.retrieval.variants.context import find_mentions


def words(text: str, label: str, *others: str) -> list[int]:
    return [start for start, _ in find_mentions(text, [label, *others])[0]]


@pytest.mark.parametrize(
    ("text", "label", "starts"),
    [
        ("Rome, Romeo and Rome", "Rome", [0, 16]),
        ("Romes aRome _Rome Rome_ Rome2", "Rome", []),
        ("A.S. Roma beat S. Roma.", "A.S. Roma", [0]),
        ("(2) Pallas met (2) Pallas", "(2) Pallas", [0, 15]),
        ("In Washington, D.C.; Washington, D.C.", "Washington, D.C.", [3, 21]),
        ("ASP.NET on .NET", ".NET", [11]),
        ("Jose\u0301 is not Jose", "Jose", [13]),
        ("São Tomé and Sao Tome", "São Tomé", [0]),
        ("rome is not Rome", "Rome", [12]),
        ("서울은 남서울", "서울", [0]),
        ("我在北京大学", "北京", [2]),
        ("anything", "", []),
        ("short", "longer than that", []),
    ],
)
def test_a_name_is_found_as_a_whole_word_in_its_case(text: str, label: str, starts: list[int]) -> None:
    assert words(text, label) == starts


def test_a_name_of_two_is_nobodys_and_takes_its_place_all_the_same() -> None:
    assert find_mentions("New York, York", ["New York", "New York", "York"]) == [[], [], [(10, 14)]]


LABELS = st.lists(st.text("ab (.", min_size=0, max_size=4), max_size=5)


@example("aa.", [".", "aa"])
@given(st.text("ab (.,", max_size=40), LABELS)
def test_mentions_are_labels_that_do_not_overlap_and_longest_first_leaves_none_out(
    text: str, labels: list[str]
) -> None:
    found = find_mentions(text, labels)
    spans = sorted(span for one in found for span in one)
    assert all(text[start:end] == label for label, one in zip(labels, found, strict=True) for start, end in one)
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans))
    if len(set(labels)) == len(labels):
        # The slow way: a regular expression for one label after the other, on what the longer ones left.
        left = text
        for label in sorted(filter(None, labels), key=lambda one: (-len(one), one)):
            pattern = rf"(?<![ab#]){re.escape(label)}(?![ab#])"
            expected = [match.span() for match in re.finditer(rf"(?=({pattern}))", left)]
            mine = found[labels.index(label)]
            assert set(mine) <= {(start, start + len(label)) for start, _ in expected}
            assert bool(mine) == bool(expected)
            for start, end in mine:
                # What was taken still bounds what stands beside it, as a letter or as none.
                left = left[:start] + "".join("#" if letter in "ab" else "\0" for letter in label) + left[end:]
