"""Dense indexes: exact against brute force, approximate ones near it, saving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anmi.retrieval.index import KINDS, DenseIndex

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
