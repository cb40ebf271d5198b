"""Merging sources: against set-based references."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import PADDING
from anmi.retrieval import pool

N = 12
DOCUMENT = st.integers(0, N - 1)
LISTS = st.lists(st.lists(DOCUMENT, max_size=5, unique=True), min_size=1, max_size=5)


def unpadded(array: np.ndarray) -> list[list[int]]:
    return [[int(d) for d in row if d != PADDING] for row in array]


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
