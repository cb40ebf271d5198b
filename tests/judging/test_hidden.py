"""Known positives that play the false negative."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.judging.conftest import block_of

from anmi.candidates import PADDING, Candidates
from anmi.judging.hidden import hide, reached


def value_of(row: int, document: int) -> float:
    return 100 * row + document


@st.composite
def blocks(draw: st.DrawFn) -> Candidates:
    """Up to four queries with up to four positives among ten documents; a column names row and document."""
    rows = draw(st.integers(1, 4))
    positives = np.full((rows, 4), PADDING, np.int32)
    documents = np.full((rows, 5), PADDING, np.int32)
    for row in range(rows):
        order = draw(st.permutations(range(10)))
        count = draw(st.integers(0, 4))
        positives[row, :count] = order[:count]
        width = draw(st.integers(0, 5))
        documents[row, :width] = order[count : count + width]
    number = np.arange(rows)[:, None] * 100.0
    dense, own = (np.where(each < 0, np.nan, number + each) for each in (documents, positives))
    return block_of(documents, positives, {"dense": dense, "of_candidates": documents * 1.0}, {"dense": own})


@given(blocks(), st.integers(0, 6))
def test_each_positive_of_a_query_with_several_is_hidden_once_and_the_others_stay_known(
    block: Candidates, depth: int
) -> None:
    hidden, row, place = hide(block, depth)
    own = [[int(d) for d in each if d != PADDING] for each in block.positives]
    wanted = Counter((f"q{at}", document) for at, each in enumerate(own) if len(each) > 1 for document in each)
    assert Counter(zip(hidden.query_ids.tolist(), hidden.documents[:, 0].tolist(), strict=True)) == wanted
    for at in range(len(hidden)):
        origin, document = int(row[at]), int(hidden.documents[at, 0])
        assert hidden.query_ids[at] == block.query_ids[origin]
        assert block.positives[origin, place[at]] == document
        known = [int(each) for each in hidden.positives[at] if each != PADDING]
        assert sorted([*known, document]) == sorted(own[origin])
        others = [int(each) for each in hidden.documents[at, 1:] if each != PADDING]
        nearest = sorted((int(each) for each in block.documents[origin] if each != PADDING), reverse=True)
        assert others == nearest[:depth], "here the larger number is the more similar document"
        for each, value in zip(hidden.documents[at], hidden.columns["dense"][at], strict=True):
            assert np.isnan(value) if each == PADDING else value == value_of(origin, int(each))
        similar = hidden.positive_columns["dense"][at]
        assert similar[np.isfinite(similar)].tolist() == [value_of(origin, each) for each in known]
    assert hidden.columns.keys() == {"dense"}, "a column that positives do not have would tell them apart"


@given(blocks(), st.integers(1, 3), st.integers(0, 9))
def test_a_few_of_many_are_drawn_by_the_query_alone(block: Candidates, most: int, seed: int) -> None:
    _, row, place = hide(block, 2, most, seed)
    count = (block.positives != PADDING).sum(axis=1)
    assert np.bincount(row, minlength=len(block)).tolist() == np.where(count > 1, np.minimum(count, most), 0).tolist()
    for at in range(len(block)):
        _, _, alone = hide(block.take(slice(at, at + 1)), 2, most, seed)
        assert alone.tolist() == place[row == at].tolist()


def test_what_is_less_similar_than_every_candidate_would_never_have_been_one() -> None:
    similarity = np.array([[0.5, 0.6, 0.4], [0.3, 0.6, 0.4], [0.4, 0.4, np.nan], [0.9, np.nan, np.nan]], np.float32)
    assert reached(similarity).tolist() == [True, False, True, False]
