"""Compiled sums over sparse rows against SciPy's products, and where nothing can be kept on disk."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from anmi.retrieval.exact import best, of_keys
from anmi.retrieval.sums import _RANGE, _compiled, add_postings, best_by_postings, row_products
from anmi.retrieval.terms import unsigned


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), queries=st.integers(0, 6), width=st.integers(0, 5))
def test_both_sums_are_products_of_sparse_rows(seed: int, queries: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    made = sparse.random(9, 12, 0.4, "csr", np.float32, rng)
    lefts = [sparse.random(queries, 12, 0.3, "csr", np.float32, rng) for _ in range(2)]
    documents = rng.integers(-1, 9, (queries, width)).astype(np.int32)
    table, found = np.zeros((12, 2), np.float32), np.zeros((2, queries, width), np.float32)
    row_products(
        documents, made.indptr, made.indices, made.data, *(
            tuple(getattr(left, name) for left in lefts) for name in ("indptr", "indices", "data")
        ), table, found,
    )  # fmt: skip
    for left, right, sums in zip(lefts, (made.data, np.ones(made.nnz, np.float32)), found, strict=True):
        full = (left @ sparse.csr_matrix((right, made.indices, made.indptr), made.shape).T).toarray()
        expected = np.where(documents < 0, 0, np.take_along_axis(full, np.maximum(documents, 0), axis=1))
        np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-6)
    assert not table.any()


def test_postings_are_added_as_often_as_a_term_is_asked_for() -> None:
    postings = sparse.csr_matrix(np.array([[0, 1, 2], [4, 0, 0]], np.float32))
    scores = np.zeros((2, 3), np.float32)
    rows, terms = np.array([0, 0, 1]), np.array([0, 0, 1])
    add_postings(rows, terms, unsigned(postings.indptr), unsigned(postings.indices), postings.data, scores)
    assert scores.tolist() == [[0, 2, 4], [4, 0, 0]]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), count=st.sampled_from([1, 70, _RANGE - 1, _RANGE + 1, 3 * _RANGE]),
    k=st.integers(0, 70), values=st.integers(1, 1000),
)  # fmt: skip
def test_the_best_by_postings_are_those_of_all_scores(seed: int, count: int, k: int, values: int) -> None:
    rng, k = np.random.default_rng(seed), min(k, count)
    # Few different weights make many equal scores.
    postings = sparse.random(6, count, 0.05, "csr", np.float32, rng)
    postings.data = rng.integers(1, values + 1, postings.nnz).astype(np.float32) / values
    firsts, terms = np.array([0, 3, 3, 5]), rng.integers(0, 6, 5)
    wanted = rng.integers(-1, count, (3, 4)).astype(np.int32)
    arrays = unsigned(postings.indptr), unsigned(postings.indices), postings.data
    full = np.zeros((3, count), np.float32)
    add_postings(np.array([0, 0, 0, 2, 2]), terms, *arrays, full)
    found, keys = np.full(wanted.shape, np.nan, np.float32), np.zeros((3, k), np.uint64)
    best_by_postings(firsts, terms, *arrays, count, wanted, found, keys)
    expected = np.where(wanted < 0, np.nan, np.take_along_axis(full, np.maximum(wanted, 0), axis=1))
    np.testing.assert_array_equal(found, expected)
    for ours, slow in zip(of_keys(np.sort(~keys, axis=1)), best(full, k), strict=True):
        np.testing.assert_array_equal(ours, slow)


def test_what_cannot_be_kept_on_disk_is_compiled_all_the_same() -> None:
    space: dict[str, object] = {}
    exec("def double(values):\n    for place in range(len(values)):\n        values[place] *= 2", space)
    values = np.ones(2)
    _compiled(space["double"])(values)  # type: ignore[arg-type]
    assert values.tolist() == [2, 2]
