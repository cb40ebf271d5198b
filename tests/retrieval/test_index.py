"""Indexes and exact search over the corpus: sums, passes, draws and saving."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import chisquare

from anmi.candidates import PADDING
from anmi.errors import AnmiError
from anmi.retrieval import exact
from anmi.retrieval.exact import best, nearest, similarities
from anmi.retrieval.index import KINDS, DenseIndex, SparseIndex
from anmi.retrieval.kinds import passes
from anmi.retrieval.pool import draw
from anmi.retrieval.sums import row_products

COUNT, WIDTH = 1500, 32


def unit(values: np.ndarray) -> np.ndarray:
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """On so few vectors, threads that wait for each other cost more than they bring."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture(scope="module")
def documents():
    """Unit vectors in 30 clusters."""
    rng = np.random.default_rng(0)
    return unit(
        rng.normal(size=(30, WIDTH))[rng.integers(0, 30, COUNT)]
        + 0.35 * rng.normal(size=(COUNT, WIDTH))
    )


@pytest.fixture(scope="module")
def queries(documents):
    rng = np.random.default_rng(1)
    return unit(documents[rng.integers(0, COUNT, 40)] + 0.1 * rng.normal(size=(40, WIDTH)))


@pytest.fixture(scope="module")
def indexes(documents):
    ids = [f"d{i}" for i in range(COUNT)]
    return {kind: DenseIndex.build(documents, ids, kind, "print") for kind in KINDS}


def test_an_approximate_index_finds_most_of_the_nearest(indexes, queries):
    exact, found = (indexes[kind].search(queries, 20)[0] for kind in KINDS)
    common = [len(np.intersect1d(*rows)) for rows in zip(exact, found, strict=True)]
    assert np.mean(common) >= 0.95 * 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_index_answers_alike(indexes, queries, tmp_path, kind):
    index = indexes[kind]
    index.save(tmp_path)
    loaded = DenseIndex.load(tmp_path)
    assert loaded.settings == index.settings and loaded.document_ids == index.document_ids
    np.testing.assert_array_equal(loaded.search(queries, 10), index.search(queries, 10))


@pytest.mark.parametrize(
    ("rows", "linked"), [(slice(None), True), (slice(5), False), (slice(5, None), False)]
)
def test_vectors_of_an_artifact_are_not_written_again(documents, tmp_path, rows, linked):
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
def test_search_is_exact(seed, documents, k, density):
    vectors = drawn(seed, documents, 15, density)
    queries = drawn(seed + 1, 4, 15, 0.4)
    if not vectors.nnz:
        return
    found, scores = SparseIndex.build(vectors, [str(i) for i in range(documents)]).search(
        queries, k
    )
    full = queries.toarray() @ vectors.toarray().T
    for row in range(4):
        order = [int(i) for i in np.argsort(-full[row], kind="stable")[:k] if full[row, i] > 0]
        listed = found[row][found[row] >= 0]
        np.testing.assert_allclose(scores[row][: len(order)], full[row][order], rtol=1e-5)
        np.testing.assert_allclose(full[row][listed], full[row][order], rtol=1e-5)


def test_it_is_saved_and_opened(tmp_path):
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


@given(
    st.lists(st.integers(0, 300), max_size=60).map(np.array),
    st.integers(1, 600),
    st.integers(1, 20),
)
def test_every_text_is_in_one_pass_of_like_length_and_bounded_tokens(lengths, tokens, block):
    groups = passes(lengths.astype(np.int64), tokens, block)
    places = [int(place) for group in groups for place in group]
    assert sorted(places) == list(range(len(lengths)))
    for group in groups:
        assert len({place // block for place in group}) == 1
        assert list(lengths[group]) == sorted(lengths[group], reverse=True)
        assert len(group) == 1 or len(group) * lengths[group].max() <= tokens


@given(
    excluded=st.lists(st.lists(st.integers(0, 39), max_size=6), min_size=1, max_size=4),
    documents=st.sampled_from([40, 41, 200]),
    count=st.sampled_from([0, 1, 2, 3, 32, 60]),
)
def test_as_many_as_there_are_and_never_an_excluded_one(excluded, documents, count):
    barred = np.array([row + [PADDING] * (6 - len(row)) for row in excluded], np.int32)
    found = draw(1, [f"q{i}" for i in range(len(excluded))], barred, documents, count)
    for row, out in zip(found.tolist(), excluded, strict=True):
        kept = [d for d in row if d != PADDING]
        assert len(set(kept)) == len(kept) == min(count, documents - len(set(out)))
        assert set(kept) <= set(range(documents)) - set(out)


@pytest.mark.parametrize(("documents", "count"), [(50, 10), (50, 3)], ids=["put in order", "drawn"])
def test_every_document_and_every_pair_is_as_likely(documents, count):
    queries = 6000
    barred = np.tile(np.array([[4, 9, PADDING]], np.int32), (queries, 1))
    found = draw(5, [f"q{i}" for i in range(queries)], barred, documents, count)
    counts = np.bincount(found.ravel(), minlength=documents)
    assert counts[[4, 9]].tolist() == [0, 0]
    left = np.delete(counts, [4, 9])
    assert chisquare(left).pvalue > 1e-3
    # The first and the last taken of a row are as free of each other as a draw without replacement
    # allows.
    drawn = np.zeros((queries, documents))
    np.put_along_axis(drawn, found.astype(np.int64), 1.0, axis=1)
    together = (drawn.T @ drawn)[np.triu_indices(documents, 1)]
    together = together[together > 0]
    assert len(together) == 48 * 47 // 2
    assert chisquare(together).pvalue > 1e-3


@pytest.mark.parametrize("documents", [100, 5000])
def test_a_query_draws_the_same_whoever_else_is_asked(documents):
    names = [f"q{i}" for i in range(30)]
    barred = np.full((30, 40), PADDING, np.int32)
    barred[3, :40] = np.arange(40)
    barred[7, :2] = [5, 5]
    whole = draw(2, names, barred, documents, 32)
    for i in range(30):
        width = max(int((barred[i] != PADDING).sum()), 1)
        alone = draw(2, [names[i]], barred[[i], :width], documents, 32)
        assert alone[0].tolist() == whole[i].tolist()
    assert len({row.tobytes() for row in whole}) == 30
    assert (draw(3, names, barred, documents, 32) != whole).any(axis=1).all()


@given(seed=st.integers(0, 2**32 - 1), queries=st.integers(0, 6), width=st.integers(0, 5))
def test_both_sums_are_products_of_sparse_rows(seed, queries, width):
    rng = np.random.default_rng(seed)
    made = sparse.random(9, 12, 0.4, "csr", np.float32, rng)
    lefts = [sparse.random(queries, 12, 0.3, "csr", np.float32, rng) for _ in range(2)]
    documents = rng.integers(-1, 9, (queries, width)).astype(np.int32)
    table, found = np.zeros((12, 2), np.float32), np.zeros((2, queries, width), np.float32)
    row_products(
        documents,
        made.indptr,
        made.indices,
        made.data,
        *(tuple(getattr(left, name) for left in lefts) for name in ("indptr", "indices", "data")),
        table,
        found,
    )
    for left, right, sums in zip(lefts, (made, made.astype(bool)), found, strict=True):
        full = (left @ right.T.astype(np.float32)).toarray()
        expected = np.take_along_axis(full, np.maximum(documents, 0), axis=1)
        expected[documents < 0] = 0
        np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-6)
    assert not table.any()


def vectors(seed: int, count: int, width: int, copies: int = 0) -> np.ndarray:
    """Unit vectors, of which the last are copies of others, so that scores tie."""
    rng = np.random.default_rng(seed)
    made = unit(rng.normal(size=(count, width)))
    made[count - copies :] = made[rng.integers(0, count, copies)]
    return made


def product_in_tf32(queries: torch.Tensor, block: np.ndarray, room: np.ndarray) -> torch.Tensor:
    """Multiply as badly as a card may: off by 2⁻⁹ of the lengths, as by rounding to 10 bits."""
    vectors = torch.tensor(block)
    lengths = queries.norm(dim=1)[:, None] * vectors.norm(dim=1)
    generator = torch.Generator().manual_seed(len(block))
    error = torch.randint(0, 2, lengths.shape, generator=generator) * 2 - 1
    return queries @ vectors.T + error * lengths * 2**-9


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 300),
    copies=st.integers(0, 150),
    width=st.integers(1, 40),
    rows=st.integers(1, 9),
    block=st.integers(1, 120),
    longest=st.sampled_from([1.0, 90.0]),
    multiplied_by=st.sampled_from(["numpy", "torch", "a card in TF32", "bfloat16"]),
    data=st.data(),
)
def test_the_nearest_are_those_of_a_full_sort(
    seed, count, copies, width, rows, block, longest, multiplied_by, data
):
    lengths = np.linspace(min(longest / 30, 1), longest, count, dtype=np.float32)
    documents = vectors(seed, count, width, min(copies, count // 2)) * lengths[:, None]
    queries = vectors(seed + 1, 20, width)
    k = data.draw(st.integers(0, count))
    everything = np.tile(np.arange(count, dtype=np.int32), (20, 1))
    full = similarities(queries, documents, everything)
    order = np.lexsort((everything, -full), axis=1)[:, :k]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_ROWS", rows)
        patch.setattr(exact, "_CARD_ROWS", rows)
        patch.setattr(exact, "_BLOCK", block)
        if multiplied_by == "a card in TF32":
            patch.setattr(exact, "product", product_in_tf32)
        rounded = exact.rounded(documents) if multiplied_by == "bfloat16" else None
        device = None if multiplied_by in ("numpy", "bfloat16") else "cpu"
        found, scores = nearest(queries, documents, k, longest, device, rounded)
    assert found.tolist() == order.tolist()
    assert (scores == np.take_along_axis(full, order, axis=1)).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 400),
    levels=st.integers(1, 50),
    data=st.data(),
)
def test_the_best_are_those_of_a_full_sort(seed, count, levels, data):
    full = (np.random.default_rng(seed).integers(0, levels, (7, count)) / 3).astype(np.float32)
    k = data.draw(st.integers(0, count))
    order = np.argsort(-full, axis=1, kind="stable")[:, :k]
    expected = np.take_along_axis(full, order, axis=1)
    documents, scores = best(full, k)
    assert (scores == expected).all()
    assert documents.tolist() == np.where(expected > 0, order, -1).tolist()


def test_nothing_is_near_a_vector_that_is_no_number():
    vectors = np.eye(4, dtype=np.float32)
    broken = np.full((1, 4), np.nan, np.float32)
    documents, scores = nearest(np.concatenate([vectors[:1], broken]), vectors, 2)
    assert documents.tolist() == [[0, 1], [-1, -1]]
    assert scores.tolist() == [[1, 0], [-np.inf, -np.inf]]
    assert (nearest(vectors[:1], np.tile(broken, (4, 1)), 2)[0] == -1).all()
