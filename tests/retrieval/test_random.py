"""Random candidates: uniform, never an excluded one, the same in any company."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from anmi.candidates import PADDING
from anmi.retrieval.pool import draw


@given(
    excluded=st.lists(st.lists(st.integers(0, 39), max_size=6), min_size=1, max_size=4),
    documents=st.sampled_from([40, 41, 200]),
    count=st.sampled_from([0, 1, 2, 3, 32, 60]),
)
@settings(max_examples=60, deadline=None)
def test_as_many_as_there_are_and_never_an_excluded_one(excluded: list[list[int]], documents: int, count: int) -> None:
    barred = np.array([row + [PADDING] * (6 - len(row)) for row in excluded], np.int32)
    found = draw(1, [f"q{i}" for i in range(len(excluded))], barred, documents, count)
    for row, out in zip(found.tolist(), excluded, strict=True):
        kept = [d for d in row if d != PADDING]
        assert len(set(kept)) == len(kept) == min(count, documents - len(set(out)))
        assert set(kept) <= set(range(documents)) - set(out)


@pytest.mark.parametrize(("documents", "count"), [(50, 10), (50, 3)], ids=["put in order", "drawn"])
def test_every_document_and_every_pair_is_as_likely(documents: int, count: int) -> None:
    queries = 6000
    barred = np.tile(np.array([[4, 9, PADDING]], np.int32), (queries, 1))
    found = draw(5, [f"q{i}" for i in range(queries)], barred, documents, count)
    counts = np.bincount(found.ravel(), minlength=documents)
    assert counts[[4, 9]].tolist() == [0, 0]
    left = np.delete(counts, [4, 9])
    assert chisquare(left).pvalue > 1e-3
    # The first and the last taken of a row are as free of each other as a draw without replacement allows.
    drawn = np.zeros((queries, documents))
    np.put_along_axis(drawn, found.astype(np.int64), 1.0, axis=1)
    together = (drawn.T @ drawn)[np.triu_indices(documents, 1)]
    together = together[together > 0]
    assert len(together) == 48 * 47 // 2
    assert chisquare(together).pvalue > 1e-3


@pytest.mark.parametrize("documents", [100, 5000])
def test_a_query_draws_the_same_whoever_else_is_asked(documents: int) -> None:
    names = [f"q{i}" for i in range(30)]
    barred = np.full((30, 40), PADDING, np.int32)
    barred[3, :40] = np.arange(40)
    barred[7, :2] = [5, 5]
    whole = draw(2, names, barred, documents, 32)
    for i in range(30):
        width = max(int((barred[i] != PADDING).sum()), 1)
        assert draw(2, names[i : i + 1], barred[i : i + 1, :width], documents, 32)[0].tolist() == whole[i].tolist()
    assert len({row.tobytes() for row in whole}) == 30
    assert (draw(3, names, barred, documents, 32) != whole).any(axis=1).all(), "another seed draws others"
