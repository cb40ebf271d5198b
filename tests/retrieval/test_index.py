"""Indexes: approximate ones near the exact one, sparse ones against brute force, saving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from anmi.errors import AnmiError
from anmi.retrieval.index import KINDS, DenseIndex, SparseIndex

COUNT, WIDTH = 1500, 32


def unit(values: np.ndarray) -> np.ndarray:
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine cost more than they bring on so few vectors."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture(scope="module")
def documents() -> np.ndarray:
    """Unit vectors in 30 clusters."""
    rng = np.random.default_rng(0)
    return unit(rng.normal(size=(30, WIDTH))[rng.integers(0, 30, COUNT)] + 0.35 * rng.normal(size=(COUNT, WIDTH)))


@pytest.fixture(scope="module")
def queries(documents: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1)
    return unit(documents[rng.integers(0, COUNT, 40)] + 0.1 * rng.normal(size=(40, WIDTH)))


@pytest.fixture(scope="module")
def indexes(documents: np.ndarray) -> dict[str, DenseIndex]:
    ids = [f"d{i}" for i in range(COUNT)]
    return {kind: DenseIndex.build(documents, ids, kind, "print") for kind in KINDS}


def test_an_approximate_index_finds_most_of_the_nearest(indexes: dict[str, DenseIndex], queries: np.ndarray) -> None:
    exact, found = (indexes[kind].search(queries, 20)[0] for kind in KINDS)
    assert np.mean([len({*a} & {*b}) / 20 for a, b in zip(exact.tolist(), found.tolist(), strict=True)]) >= 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_index_answers_alike(
    indexes: dict[str, DenseIndex], queries: np.ndarray, tmp_path: Path, kind: str
) -> None:
    indexes[kind].save(tmp_path)
    loaded = DenseIndex.load(tmp_path)
    assert loaded.settings == indexes[kind].settings and loaded.document_ids == indexes[kind].document_ids
    for before, after in zip(indexes[kind].search(queries, 10), loaded.search(queries, 10), strict=True):
        assert (before == after).all()


@pytest.mark.parametrize(("rows", "linked"), [(slice(None), True), (slice(5), False), (slice(5, None), False)])
def test_vectors_of_an_artifact_are_not_written_again(
    documents: np.ndarray, tmp_path: Path, rows: slice, linked: bool
) -> None:
    np.save(tmp_path / "embeddings.npy", documents)
    mapped = np.load(tmp_path / "embeddings.npy", mmap_mode="r")[rows]
    (tmp_path / "index").mkdir()
    DenseIndex.build(mapped, [f"d{i}" for i in range(len(mapped))]).save(tmp_path / "index")
    assert (tmp_path / "index" / "vectors.npy").samefile(tmp_path / "embeddings.npy") == linked
    found = DenseIndex.load(tmp_path / "index").exact
    assert found is not None and (found == documents[rows]).all()


def drawn(seed: int, rows: int, columns: int, density: float) -> sparse.csr_matrix:
    return sparse.random(rows, columns, density, format="csr", dtype=np.float32, random_state=seed)


def is_mapped(array: np.ndarray | None) -> bool:
    return array is not None and (isinstance(array, np.memmap) or is_mapped(array.base))


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 12), st.floats(0.05, 0.9))
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
    empty = sparse.csr_matrix((2, 5), dtype=np.float32)
    with pytest.raises(AnmiError, match="smaller penalty"):
        SparseIndex.build(empty, ["a", "b"])
    with pytest.raises(AnmiError, match="2 vectors were given for 1"):
        SparseIndex.build(empty, ["a"])
    with pytest.raises(AnmiError, match="less than 0 or is not finite"):
        SparseIndex.build(sparse.csr_matrix([[-1.0]]), ["a"])
