"""Candidates of a shard in one pass, positives and related documents, and fused rankings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.candidates import PADDING, SOURCES, Candidates
from anmi.corpus.related import COPY
from anmi.retrieval import bm25, pool
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import Method, Ranked, fuse
from anmi.retrieval.index import DenseIndex
from anmi.retrieval.pool import KINDS, Positives, RelatedDocuments
from anmi.retrieval.retrieve import Queries, Retrieve

N = 10
DOCUMENT = st.integers(0, N - 1)
NEAR = st.lists(
    st.tuples(DOCUMENT, DOCUMENT, st.just("near")).filter(lambda pair: pair[0] != pair[1]),
    max_size=8,
)


def siblings_of(parents: list[int]) -> list[tuple[int, int, str]]:
    """As ingestion lists them: the first of each parent with every other one."""
    return [
        (parents.index(parent), i, "sibling")
        for i, parent in enumerate(parents)
        if parents.index(parent) != i
    ]


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
    return RelatedDocuments.from_table(
        pd.DataFrame(names, columns=["document_id", "other_id", "kind"]), NAMES
    )


def padded(rows: list[list[int]], width: int = 4) -> np.ndarray:
    return np.array([row + [PADDING] * (width - len(row)) for row in rows], np.int32).reshape(
        len(rows), width
    )


def expected_kind(
    pairs: list[tuple[int, int, str]], labels: list[int], positives: list[int], document: int
) -> int:
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


@given(
    pairs=PAIRS,
    labels=GROUPS,
    rows=ROWS,
    own=st.lists(st.lists(DOCUMENT, max_size=1), min_size=4, max_size=4),
)
def test_relations_go_both_ways_through_copies_and_near_ones_win(pairs, labels, rows, own):
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


@given(rows=ROWS, seed=st.integers(0, 99))
def test_positives_are_the_relevant_documents_in_the_order_of_the_qrels(rows, seed):
    queries = [f"q{i}" for i in range(len(rows))]
    pairs = [(f"q{i}", f"d{d}", 1 + d % 2) for i, row in enumerate(rows) for d in row]
    pairs += [("stranger", "d1", 1), ("q0", "d3", 0)]
    pairs = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]
    qrels = pd.DataFrame(pairs, columns=["query_id", "document_id", "relevance"])
    found = Positives(qrels, {f"d{d}": d for d in range(N)}).of(queries)
    unpadded = [[d for d in row if d != PADDING] for row in found.tolist()]
    assert unpadded == [
        [int(d[1:]) for q, d, r in pairs if q == query and r > 0] for query in queries
    ]
    assert found.shape[1] >= 1


DOCUMENTS, QUERIES, WIDTH = 150, 11, 8


@pytest.fixture(scope="module")
def made():
    """Documents of few words, so that scores tie; some are copies, some queries share no term."""
    rng = np.random.default_rng(3)
    words = np.array([f"w{i}" for i in range(25)])
    texts = [" ".join(rng.choice(words, rng.integers(2, 6))) for _ in range(DOCUMENTS)]
    asked = [" ".join(rng.choice(words, 2)) for _ in range(QUERIES - 2)] + ["", "nothing known"]
    vectors = rng.normal(size=(DOCUMENTS, WIDTH)).astype(np.float32)
    queries = rng.normal(size=(QUERIES, WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    ids = [f"d{i}" for i in range(DOCUMENTS)]
    pairs = [("d90", "d0", COPY), ("d91", "d0", COPY), ("d92", "d40", COPY)]
    pairs += [("d1", "d50", "near"), ("d2", "d9", "sibling")]
    table = pd.DataFrame(pairs, columns=["document_id", "other_id", "kind"])
    positives = np.full((QUERIES, 3), PADDING, np.int32)
    positives[:, 0] = np.arange(QUERIES)
    positives[4, 1:] = [40, 41]
    own = np.full(QUERIES, PADDING, np.int32)
    own[5] = 92
    retrieve = Retrieve(
        bm25=BM25Index.build(texts, "en", kind="whitespace"),
        vectors=vectors,
        approximate=None,
        related=RelatedDocuments.from_table(table, ids),
        bm25_depth=20,
        dense_depth=15,
        random=6,
        seed=2,
    )
    return retrieve, Queries([f"q{i}" for i in range(QUERIES)], asked, positives, own, queries)


def asking(retrieve: Retrieve, *sources: str) -> Retrieve:
    """The same retrieval by some of the sources alone."""
    bm25_index = retrieve.bm25 if "bm25" in sources else None
    return replace(
        retrieve, bm25=bm25_index, vectors=retrieve.vectors if "dense" in sources else None
    )


Row = dict[int, dict[str, float]]


# By copy the first document of the same text; as the table of copies has it.
COPIES = {90: 0, 91: 0, 92: 40}


def group_of(document: int) -> int:
    return COPIES.get(document, document)


def slow(retrieve: Retrieve, queries: Queries) -> list[tuple[list[int], Row, Row]]:
    """Documents in order, and what is said of each and of each positive, query by query."""
    found: list[tuple[list[int], Row, Row]] = []
    for number, text in enumerate(queries.texts):
        known = [
            int(p) for p in [*queries.positives[number], queries.query_documents[number]] if p >= 0
        ]
        groups = {group_of(p) for p in known}
        barred = {d for d in range(len(retrieve.related)) if group_of(d) in groups}
        said: Row = {d: {"source": 0.0} for d in range(len(retrieve.related))}
        fused = np.zeros(len(retrieve.related))
        scores = {}
        if retrieve.bm25 is not None:
            scores["bm25"] = next(retrieve.bm25.scored([text], 1))[1][0].copy()
        if retrieve.vectors is not None:
            scores["dense"] = retrieve.vectors @ queries.vectors[number]
        for name, depth in (("bm25", retrieve.bm25_depth), ("dense", retrieve.dense_depth)):
            if name not in scores:
                continue
            values = scores[name]
            ranks = np.array([1 + (values > value).sum() for value in values])
            order = [
                d
                for d in np.lexsort((np.arange(len(values)), -values)).tolist()
                if d not in barred and d not in COPIES
            ]
            order = [d for d in order[:depth] if name == "dense" or values[d] > 0]
            for document in order:
                said[document]["source"] += SOURCES[name]
            # Where less than asked for was found, that was all there is.
            deepest = np.inf if len(order) < depth else ranks[order[-1]] if depth else 0
            deepest = max(deepest, getattr(retrieve, f"{name}_ranks"))
            for document, told in said.items():
                told |= {name: float(values[document]), f"{name}_rank": float(ranks[document])}
                if ranks[document] > deepest:
                    told[f"{name}_rank"] = np.nan
                    if name == "bm25":
                        told["exact"] = float(ranks[document])
            fused += np.where(ranks > deepest, 0, 1 / (60 + ranks))
        texts = [d for d in range(len(retrieve.related)) if d not in COPIES]
        excluded = np.array([[texts.index(group) for group in sorted(groups)]], np.int32)
        drawn = pool.draw(
            retrieve.seed, [queries.query_ids[number]], excluded, len(texts), retrieve.random
        )
        for place in drawn[0][drawn[0] >= 0].tolist():
            said[texts[place]]["source"] += SOURCES["random"]
        for document, told in said.items():
            told["fused"] = float(fused[document])
        chosen = [d for d, told in said.items() if told["source"]]
        chosen.sort(
            key=lambda d: (said[d]["source"] == SOURCES["random"], -np.float32(said[d]["fused"]), d)
        )
        found.append(
            (chosen, said, {d: said[d] for d in queries.positives[number].tolist() if d >= 0})
        )
    return found


def check(block: Candidates, expected: list[tuple[list[int], Row, Row]], columns: set[str]) -> None:
    assert set(block.columns) == columns | {"fused", "related"}
    assert set(block.positive_columns) == columns
    for row, (documents, said, own) in enumerate(expected):
        held = block.filled[row]
        assert block.documents[row, held].tolist() == documents
        assert not held[len(documents) :].any(), "padding comes last"
        assert block.source[row, held].tolist() == [said[d]["source"] for d in documents]
        assert not block.source[row, ~held].any()
        for name in columns | {"fused"}:
            values = [said[d][name] for d in documents]
            np.testing.assert_allclose(
                block.columns[name][row, held], values, rtol=1e-4, atol=1e-6, err_msg=name
            )
            if name != "fused":
                assert np.isnan(block.columns[name][row, ~held]).all()
        for name in columns:
            known = block.positives[row] >= 0
            values = [
                told.get("exact", told[name]) if name == "bm25_rank" else told[name]
                for told in own.values()
            ]
            np.testing.assert_allclose(
                block.positive_columns[name][row, known], values, rtol=1e-4, err_msg=name
            )
            assert np.isnan(block.positive_columns[name][row, ~known]).all()


BM25_COLUMNS, DENSE_COLUMNS = {"bm25", "bm25_rank"}, {"dense", "dense_rank"}


@pytest.mark.parametrize(
    ("sources", "columns"),
    [
        (("bm25", "dense"), BM25_COLUMNS | DENSE_COLUMNS),
        (("bm25",), BM25_COLUMNS),
        (("dense",), DENSE_COLUMNS),
        ((), set()),
    ],
    ids=["both", "bm25", "dense", "neither"],
)
# All queries at a time, a few, and each alone: parts of which the widest row is another.
@pytest.mark.parametrize("cells", [4_000_000, 3 * DOCUMENTS, 1])
def test_one_pass_is_what_sets_and_full_scores_say(made, sources, columns, cells, monkeypatch):
    monkeypatch.setattr(bm25, "_CELLS", cells)
    retrieve, queries = asking(made[0], *sources), made[1]
    check(retrieve(queries), slow(retrieve, queries), columns)


@pytest.mark.parametrize(
    "options",
    [
        {"random": 0},
        {"bm25_depth": 300, "dense_depth": 300},
        {"random": 300, "bm25_depth": 1, "dense_depth": 1},
        {"random": 300, "bm25_ranks": 30, "dense_ranks": 70},
        {"random": 300, "dense_depth": 0, "bm25_ranks": 300, "dense_ranks": 300},
        {"random": 300, "dense_depth": 0},
    ],
    ids=str,
)
def test_depths_of_any_size_are_kept(made, options):
    retrieve, queries = replace(made[0], **options), made[1]
    check(retrieve(queries), slow(retrieve, queries), BM25_COLUMNS | DENSE_COLUMNS)


def test_the_rank_of_an_approximate_index_is_a_place_in_its_list(made):
    retrieve, queries = made
    index = DenseIndex.build(retrieve.vectors, [f"d{i}" for i in range(DOCUMENTS)], "hnsw")
    near, exact = replace(retrieve, approximate=index)(queries), retrieve(queries)
    listed = np.isfinite(near.columns["dense_rank"])
    assert listed[(near.source & SOURCES["dense"]) > 0].all() and not listed.all(), (
        "beyond the list there is no place"
    )
    for row in range(QUERIES):
        cosines, expected = (
            dict(zip(block.documents[row].tolist(), block.columns["dense"][row], strict=True))
            for block in (near, exact)
        )
        assert cosines == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)


def test_of_many_positives_some_are_measured_and_none_is_a_candidate(made):
    retrieve, queries = made
    many = np.full((QUERIES, 120), PADDING, np.int32)
    many[:, 0] = queries.positives[:, 0]
    many[3] = np.arange(120)
    block = retrieve(queries._replace(positives=many))
    assert block.positives.shape[1] == retrieve.measured == 8
    assert {values.shape[1] for values in block.positive_columns.values()} == {8}
    assert len({*block.positives[3]} & {*range(120)}) == 8
    assert block.documents[3, block.filled[3]].min() >= 120
    similar = np.sort(block.positive_columns["dense"][3])
    assert block.positive_columns["dense"][3, 0] in similar[3:5], "the median one stands first"


# Distinct, or the order would be that of ties; whole, so that sums are exact.
SCORES = st.lists(st.integers(1, 60), min_size=0, max_size=6, unique=True).map(
    lambda v: sorted(v, reverse=True)
)


@st.composite
def lists(draw: Any) -> tuple[list[int], list[int]]:
    """The documents and scores of one query."""
    scores = draw(SCORES)
    documents = draw(
        st.lists(st.integers(0, 9), min_size=len(scores), max_size=len(scores), unique=True)
    )
    return documents, scores


def ranked(found: list[tuple[list[int], list[int]]], width: int = 6) -> Ranked:
    documents, scores = (
        np.full((len(found), width), PADDING, np.int32),
        np.zeros((len(found), width), np.float32),
    )
    for row, (ids, values) in enumerate(found):
        documents[row, : len(ids)], scores[row, : len(ids)] = ids, values
    return Ranked(documents, scores)


PARTS = ("bm25", "dense", "sparse")
SPREAD = {"dense": 0.25, "sparse": 2.0}


def reference(
    parts: dict[str, tuple[list[int], list[int]]],
    spreads: dict[str, float],
    method: str,
    weights: dict[str, float],
    width: int = 6,
) -> dict[int, float]:
    """The score of every document, one after another."""
    found = {}
    for document in {document for ids, _ in parts.values() for document in ids}:
        if method == "rrf":
            ranks = [ids.index(document) + 1 for ids, _ in parts.values() if document in ids]
            found[document] = sum(1 / (60 + rank) for rank in ranks)
            continue
        found[document] = 0.0
        for name, (ids, scores) in parts.items():
            full = 0 if name == "dense" else width
            least = (scores[-1] if len(scores) >= full else 0) if scores else 0
            score = scores[ids.index(document)] if document in ids else least
            found[document] += weights[name] * (score / spreads[name] if spreads[name] > 0 else 0)
    return found


@given(
    st.lists(
        st.tuples(lists(), lists(), lists(), st.sampled_from([0.0, 0.5, 2.0])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(get_args(Method)),
    st.sampled_from([(1.0, 0.0), (0.75, 0.25), (0.5, 0.5), (0.0, 1.0), (0.25, 0.5, 0.25)]),
    st.integers(1, 18),
)
def test_it_is_what_the_slow_reference_says(rows, method, given_weights, k):
    weights = dict(zip(PARTS, given_weights, strict=False))
    listed = {name: ranked([row[place] for row in rows]) for place, name in enumerate(weights)}
    spreads = {"bm25": np.array([row[3] for row in rows]), **SPREAD}
    found = fuse(listed, k, spreads, method, weights)
    assert found.documents.shape[1] <= k
    for i, (*parts, spread) in enumerate(rows):
        own = dict(zip(weights, parts, strict=False))
        expected = reference(own, {"bm25": spread, **SPREAD}, method, weights)
        documents = [int(document) for document in found.documents[i] if document != PADDING]
        assert len(documents) == min(k, len(expected))
        scores = found.scores[i, : len(documents)]
        np.testing.assert_allclose(
            scores, [expected[document] for document in documents], rtol=1e-5
        )
        np.testing.assert_allclose(
            scores, sorted(expected.values(), reverse=True)[: len(documents)], rtol=1e-5
        )
        for name, (ids, values) in own.items():
            ranks, said = found.part_ranks[name], found.part_scores[name]
            for place, document in enumerate(documents):
                if document in ids:
                    rank = ids.index(document)
                    assert (ranks[i, place], said[i, place]) == (rank + 1, values[rank])
                else:
                    assert np.isnan(ranks[i, place]) and np.isnan(said[i, place])


def test_bm25_tells_how_far_its_scores_spread():
    texts = ["red fox den", "blue whale", "red whale song", "a green tree"]
    index = BM25Index.build(texts, "en")
    search, spread = index.search_of(["red fox", "whale", "nothing of it"])
    documents, scores = search(3)
    blocks = index.scored(["red fox", "whale", "nothing of it"], 3)
    full = np.concatenate([block.copy() for _, block in blocks])
    np.testing.assert_allclose(spread, full.std(axis=1), rtol=1e-6)
    assert spread[2] == 0 and (documents[2] == PADDING).all()
    np.testing.assert_array_equal(index.search(["red fox"], 3)[1], scores[:1])
