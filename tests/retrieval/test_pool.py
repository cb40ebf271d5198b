"""Positives of each row and what is related to them, against sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.candidates import PADDING
from anmi.corpus.related import COPY
from anmi.retrieval.pool import KINDS, Positives, RelatedDocuments

N = 10
DOCUMENT = st.integers(0, N - 1)
NEAR = st.lists(st.tuples(DOCUMENT, DOCUMENT, st.just("near")).filter(lambda pair: pair[0] != pair[1]), max_size=8)


def siblings_of(parents: list[int]) -> list[tuple[int, int, str]]:
    """As ingestion lists them: the first of each parent with every other one."""
    return [(parents.index(parent), i, "sibling") for i, parent in enumerate(parents) if parents.index(parent) != i]


PAIRS = st.tuples(NEAR, st.lists(st.integers(0, 8), min_size=N, max_size=N).map(siblings_of)).map(
    lambda both: [*both[0], *both[1]]
)
GROUPS = st.lists(st.integers(0, 6), min_size=N, max_size=N)
ROWS = st.lists(st.lists(DOCUMENT, max_size=3, unique=True), min_size=1, max_size=4)
NAMES = [f"d{i}" for i in range(N)]


def related_by(pairs: list[tuple[int, int, str]], labels: list[int]) -> RelatedDocuments:
    firsts = [labels.index(label) for label in labels]
    rows = [(i, first, COPY) for i, first in enumerate(firsts) if first != i] + pairs
    names = [(f"d{i}", f"d{j}", kind) for i, j, kind in rows]
    return RelatedDocuments.from_table(pd.DataFrame(names, columns=["document_id", "other_id", "kind"]), NAMES)


def padded(rows: list[list[int]], width: int = 4) -> np.ndarray:
    return np.array([row + [PADDING] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)


def expected_kind(pairs: list[tuple[int, int, str]], labels: list[int], positives: list[int], document: int) -> int:
    known = {labels[p] for p in positives}
    first = {j: i for i, j, kind in pairs if kind == "sibling"}
    family = [first.get(i, i) for i in range(N)]
    both = [(i, j, "sibling") for i in range(N) for j in range(N) if family[i] == family[j]]
    near = [pair for i, j, kind in pairs if kind == "near" for pair in ((i, j, kind), (j, i, kind))]
    found = [
        KINDS[kind]
        for i, j, kind in near + both
        if labels[i] != labels[j] and labels[i] in known and labels[j] == labels[document]
    ]
    return min(found, default=0)


@given(pairs=PAIRS, labels=GROUPS, rows=ROWS, own=st.lists(st.lists(DOCUMENT, max_size=1), min_size=4, max_size=4))
def test_relations_go_both_ways_through_copies_and_near_ones_win(
    pairs: list[tuple[int, int, str]], labels: list[int], rows: list[list[int]], own: list[list[int]]
) -> None:
    related, positives = related_by(pairs, labels), padded(rows)
    documents = np.tile(np.array([*range(N), PADDING], np.int32), (len(rows), 1))
    expected = [[expected_kind(pairs, labels, row, d) for d in range(N)] for row in rows]
    found = related.kinds(positives, documents)
    assert found.dtype == np.uint8
    assert found[:, :N].tolist() == expected
    assert not found[:, N].any()
    barred = related.excluded(positives, padded(own[: len(rows)], 1))
    for row, itself, listed in zip(rows, own, barred.tolist(), strict=False):
        same = {labels[d] for d in (*row, *itself)}
        assert [d for d in listed if d != PADDING] == [
            d for d in range(N) if labels[d] in same or expected_kind(pairs, labels, row, d)
        ]


@given(labels=GROUPS, rows=ROWS)
def test_documents_come_with_all_of_their_text_and_nothing_else(labels: list[int], rows: list[list[int]]) -> None:
    found = related_by([(0, 1, "near")], labels).same_text(padded(rows))
    expected = [{d for d in range(N) if labels[d] in {labels[p] for p in row}} for row in rows]
    assert [set(row) - {PADDING} for row in found.tolist()] == expected
    assert found.shape[1] >= max(map(len, expected)), "padding is cut, documents are not"


@given(rows=ROWS, seed=st.integers(0, 99))
def test_positives_are_the_relevant_documents_in_the_order_of_the_qrels(rows: list[list[int]], seed: int) -> None:
    queries = [f"q{i}" for i in range(len(rows))]
    pairs = [(f"q{i}", f"d{d}", 1 + d % 2) for i, row in enumerate(rows) for d in row]
    pairs += [("stranger", "d1", 1), ("q0", "d3", 0)]
    pairs = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]
    qrels = pd.DataFrame(pairs, columns=["query_id", "document_id", "relevance"])
    found = Positives(qrels, {f"d{d}": d for d in range(N)}).of(queries)
    unpadded = [[d for d in row if d != PADDING] for row in found.tolist()]
    assert unpadded == [[int(d[1:]) for q, d, r in pairs if q == query and r > 0] for query in queries]
    assert found.shape[1] >= 1
