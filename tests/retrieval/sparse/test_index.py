from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.retrieval.index import SparseIndex


def drawn(seed: int, rows: int, columns: int, density: float) -> scipy.sparse.csr_matrix:
    return scipy.sparse.random(rows, columns, density, format="csr", dtype=np.float32, random_state=seed)


def is_mapped(array: np.ndarray | None) -> bool:
    return array is not None and (isinstance(array, np.memmap) or is_mapped(array.base))


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 12), st.floats(0.05, 0.9))
@settings(max_examples=50, deadline=None)
def test_search_is_exact(seed: int, documents: int, k: int, density: float):
    vectors = drawn(seed, documents, 15, density)
    queries = drawn(seed + 1, 4, 15, 0.4)
    if not vectors.nnz:
        return
    found, scores = SparseIndex.build(vectors, [str(i) for i in range(documents)]).search(queries, k)
    full = queries.toarray() @ vectors.toarray().T
    for row in range(4):
        order = [int(i) for i in np.argsort(-full[row], kind="stable")[:k] if full[row, i] > 0]
        listed = found[row][found[row] >= 0]
        np.testing.assert_allclose(scores[row][: len(order)], full[row][order], rtol=1e-5)
        np.testing.assert_allclose(full[row][listed], full[row][order], rtol=1e-5)


def test_it_is_saved_and_opened(tmp_path: Path):
    index = SparseIndex.build(drawn(3, 50, 20, 0.2), [f"d{i}" for i in range(50)])
    index.save(tmp_path)
    again = SparseIndex.load(tmp_path)
    assert again.document_ids == index.document_ids
    assert is_mapped(again.postings.data)
    queries = drawn(4, 3, 20, 0.5)
    for a, b in zip(index.search(queries, 5), again.search(queries, 5), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_could_find_nothing_is_refused():
    empty = scipy.sparse.csr_matrix((2, 5), dtype=np.float32)
    with pytest.raises(AnmiError, match="smaller penalty"):
        SparseIndex.build(empty, ["a", "b"])
    with pytest.raises(AnmiError, match="2 vectors were given for 1"):
        SparseIndex.build(empty, ["a"])
    with pytest.raises(AnmiError, match="less than 0 or is not finite"):
        SparseIndex.build(scipy.sparse.csr_matrix([[-1.0]]), ["a"])
