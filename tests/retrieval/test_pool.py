"""Merging sources: against set-based references."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import PADDING, SOURCES
from anmi.retrieval import pool

N = 12
DOCUMENT = st.integers(0, N - 1)
LISTS = st.lists(st.lists(DOCUMENT, max_size=5, unique=True), min_size=1, max_size=5)
GROUPS = st.lists(st.integers(0, 4), min_size=N, max_size=N)


def ragged(rows: list[list[int]], extra: int = 0) -> np.ndarray:
    width = max(map(len, rows), default=0) + extra
    return np.array([row + [PADDING] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)


def unpadded(array: np.ndarray) -> list[list[int]]:
    return [[int(d) for d in row if d != PADDING] for row in array]


def group_of(labels: list[int]) -> np.ndarray:
    """Index of the first document of each label."""
    return np.array([labels.index(label) for label in labels], np.int32)


@given(rows=LISTS, seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_positives_are_the_relevant_documents_in_the_order_of_the_qrels(rows: list[list[int]], seed: int) -> None:
    queries = [f"q{i}" for i in range(len(rows))]
    pairs = [(f"q{i}", f"d{d}", 1 + d % 2) for i, row in enumerate(rows) for d in row]
    pairs += [("stranger", "d1", 1), ("q0", "d3", 0)]
    pairs = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]
    qrels = pd.DataFrame(pairs, columns=["query_id", "document_id", "relevance"])
    found = pool.Positives(qrels, {f"d{d}": d for d in range(N)}).of(queries)
    assert unpadded(found) == [[int(d[1:]) for q, d, r in pairs if q == query and r > 0] for query in queries]
    assert found.shape[1] >= 1


@given(st.lists(st.lists(st.lists(DOCUMENT, max_size=5, unique=True), min_size=4, max_size=4), min_size=1, max_size=3))
@settings(max_examples=80, deadline=None)
def test_what_is_merged_carries_the_bits_of_its_sources_and_its_value(lists: list[list[list[int]]]) -> None:
    made = [ragged(rows, extra=number) for number, rows in enumerate(lists)]
    names = ["bm25", "dense", "random"][: len(lists)]
    documents, source, values = pool.merged(
        *(
            (each, np.where(each < 0, np.nan, each / 7).astype(np.float32), name)
            for each, name in zip(made, names, strict=True)
        )
    )
    for i in range(4):
        expected = {
            d: sum(SOURCES[name] for rows, name in zip(lists, names, strict=True) if d in rows[i]) for d in range(N)
        }
        expected = {d: bits for d, bits in expected.items() if bits}
        held = documents[i] != PADDING
        assert documents[i, held].tolist() == sorted(expected)
        assert dict(zip(documents[i, held].tolist(), source[i, held].tolist(), strict=True)) == expected
        assert (values[i, held] == (documents[i, held] / 7).astype(np.float32)).all()
        assert (source[i, ~held] == 0).all() and np.isnan(values[i, ~held]).all()
        assert held.tolist() == sorted(held.tolist(), reverse=True), "padding comes last"


def test_fusion_adds_reciprocal_ranks_and_a_missing_rank_adds_nothing() -> None:
    fused = pool.fused_rank(np.array([[1.0, 40.0, np.nan]]), np.array([[2.0, np.nan, np.nan]]))
    np.testing.assert_allclose(fused, [[1 / 61 + 1 / 62, 1 / 100, 0]], rtol=1e-6)
    assert fused.dtype == np.float32


@given(GROUPS)
@settings(max_examples=40, deadline=None)
def test_duplicates_are_grouped_under_the_first_of_their_text(labels: list[int]) -> None:
    group = group_of(labels)
    pairs = [(f"d{i}", f"d{g}", "copy") for i, g in enumerate(group) if g != i]
    # Of documents that are merely alike none stands for the other.
    pairs += [("d0", f"d{N - 1}", "near"), ("d1", "d2", "sibling")]
    table = pd.DataFrame(pairs, columns=["document_id", "other_id", "kind"])
    assert pool.duplicate_groups([f"d{i}" for i in range(N)], table).tolist() == group.tolist()
