"""Known positives that play the false negative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import PADDING, Candidates
from anmi.judging.evidence import Material, Terms
from anmi.judging.hidden import averaged, hidden_evidence, hide


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
    return Candidates(
        query_ids=np.array([f"q{row}" for row in range(rows)]),
        positives=positives,
        documents=documents,
        source=np.zeros(documents.shape, np.uint8),
        columns={
            "dense": np.where(documents < 0, np.nan, number + documents).astype(np.float32),
            "of_candidates": documents.astype(np.float32),
        },
        positive_columns={"dense": np.where(positives < 0, np.nan, number + positives).astype(np.float32)},
    )


@settings(max_examples=120, deadline=None)
@given(blocks(), st.integers(0, 6))
def test_each_positive_of_a_query_with_several_is_the_known_one_once(block: Candidates, depth: int) -> None:
    hidden, label, origin = hide(block, depth)
    own = [[int(d) for d in row if d != PADDING] for row in block.positives]
    wanted = Counter((f"q{row}", document) for row, each in enumerate(own) if len(each) > 1 for document in each)
    assert hidden.positives.shape[1] == 1
    assert Counter(zip(hidden.query_ids.tolist(), hidden.positives[:, 0].tolist(), strict=True)) == wanted
    for place in range(len(hidden)):
        row, known = int(origin[place]), int(hidden.positives[place, 0])
        assert hidden.query_ids[place] == block.query_ids[row]
        relevant = hidden.documents[place][label[place]].tolist()
        assert sorted(relevant) == sorted(set(own[row]) - {known})
        others = hidden.documents[place][~label[place] & hidden.filled[place]].tolist()
        assert others == [document for document in block.documents[row][:depth].tolist() if document != PADDING]
        assert known not in hidden.documents[place]
        for document, value in zip(hidden.documents[place], hidden.columns["dense"][place], strict=True):
            assert np.isnan(value) if document == PADDING else value == value_of(row, int(document))
        assert hidden.positive_columns["dense"][place, 0] == value_of(row, known)
    assert hidden.columns.keys() == {"dense"}, "a column that positives do not have would tell them apart"


@settings(max_examples=60, deadline=None)
@given(blocks(), st.integers(0, 1000))
def test_a_positive_gets_the_mean_over_the_rows_in_which_it_was_hidden(block: Candidates, seed: int) -> None:
    hidden, label, origin = hide(block, 3)
    values = np.random.default_rng(seed).random(hidden.documents.shape)
    values[values < 0.1] = np.nan
    found = averaged(block, values, hidden, label, origin)
    assert found.shape == block.positives.shape
    for row, own in enumerate(block.positives):
        for place, document in enumerate(own):
            at = (origin == row)[:, None] & (hidden.documents == document) & label & np.isfinite(values)
            if document == PADDING or not at.any():
                assert np.isnan(found[row, place])
            else:
                np.testing.assert_allclose(found[row, place], values[at].mean(), rtol=1e-6)


def split(texts: Sequence[str]) -> list[list[str]]:
    return [text.split() for text in texts]


def test_evidence_is_gathered_against_the_one_known_positive() -> None:
    texts = ["red fox", "sea whale", "fox den", "sea"]
    block = Candidates(
        np.array(["q"]), np.array([[0, 1]], np.int32), np.array([[2, 3]], np.int32), np.zeros((1, 2), np.uint8)
    )
    material = Material(Terms.build(texts, split), {"q": "fox"}, np.eye(4, dtype=np.float32))
    hidden, _, _ = hidden_evidence(block, material, 2)
    assert hidden.documents.tolist() == [[1, 2, 3], [0, 2, 3]]
    found = hidden.columns["containment"]
    assert found[0, 0] == 0, "the hidden positive is not compared with itself"
    assert 0 < found[0, 1] < 1
    assert found[0, 2] == 0, "nor a candidate with the hidden one"
    assert found[1, 1] == 0
    assert found[1, 2] > 0


def test_one_positive_everywhere_leaves_nothing_to_hide() -> None:
    block = Candidates(
        np.array(["q"]), np.array([[0]], np.int32), np.array([[2, 3]], np.int32), np.zeros((1, 2), np.uint8)
    )
    material = Material(Terms.build(["a", "b", "c", "d"], split), {"q": "a"})
    hidden, label, origin = hidden_evidence(block, material, 2)
    assert (len(hidden), label.size, origin.size) == (0, 0, 0)
