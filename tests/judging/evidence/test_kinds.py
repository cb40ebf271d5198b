"""Evidence of relevance."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.judging.conftest import block_of

from anmi.candidates import PADDING, Candidates
from anmi.judging.evidence import KINDS, ByNetwork, Material, Terms, facts_of, gather

VOCABULARY = ("red", "fox", "den", "sea", "whale")
K1, B = 0.9, 0.4
TEXTUAL = ("coverage", "match", "likeness", "likeness_terms", "containment", "contained")
Value = Callable[[int, int], float]


def split(texts: Sequence[str]) -> list[list[str]]:
    """Split at spaces."""
    return [text.split() for text in texts]


@dataclass(frozen=True)
class Case:
    """A corpus, queries with their positives, and candidates."""

    texts: list[str]
    queries: list[str]
    block: Candidates
    vectors: NDArray[np.float32]

    def material(self, references: int = 8) -> Material:
        """What the package measures on."""
        named = dict(zip(self.block.query_ids.tolist(), self.queries, strict=True))
        return Material(Terms.build(self.texts, split), named, self.vectors, references=references)


def make_case(
    texts: Sequence[str],
    queries: Sequence[str],
    positives: Sequence[Sequence[int]],
    candidates: Sequence[Sequence[int]],
) -> Case:
    """Pad positives and candidates into a block; vectors are drawn from a fixed stream."""

    def padded(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
        width = max(1, *map(len, rows))
        return np.array([[*row, *[PADDING] * (width - len(row))] for row in rows], np.int32)

    vectors = np.random.default_rng(0).normal(size=(len(texts), 8)).astype(np.float32)
    block = block_of(padded(candidates), padded(positives))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Case(list(texts), list(queries), block, vectors)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a corpus of two to six documents and up to three queries with up to three positives."""
    words = st.sampled_from(VOCABULARY)
    texts = draw(st.lists(st.lists(words, max_size=6).map(" ".join), min_size=2, max_size=6))
    number = draw(st.integers(1, 3))
    queries = [
        " ".join(draw(st.lists(words | st.just("unknown"), max_size=5))) for _ in range(number)
    ]
    positives, candidates = [], []
    for _ in range(number):
        order = draw(st.permutations(range(len(texts))))
        count = draw(st.integers(1, min(3, len(texts) - 1)))
        positives.append(order[:count])
        candidates.append(order[count : draw(st.integers(count, len(texts)))])
    return make_case(texts, queries, positives, candidates)


class Reference:
    """The kinds of evidence over dicts and loops: slow, and to be read beside the formulas."""

    def __init__(self, case: Case, references: int = 8) -> None:
        self.case = case
        self.references = references
        self.tokens = split(case.texts)
        count = len(self.tokens)
        holding = Counter(term for row in self.tokens for term in set(row))
        self.idf = {
            term: math.log(1 + (count - df + 0.5) / (df + 0.5)) for term, df in holding.items()
        }
        self.mean_length = sum(map(len, self.tokens)) / count

    def mass(self, terms: set[str]) -> float:
        return sum(self.idf[term] for term in terms)

    def known(self, row: int) -> set[str]:
        return {term for term in self.case.queries[row].split() if term in self.idf}

    def coverage(self, row: int, document: int) -> float:
        asked = self.known(row)
        held = asked & set(self.tokens[document])
        return self.mass(held) / self.mass(asked) if asked else math.nan

    def match(self, row: int, document: int) -> float:
        asked, count = self.known(row), Counter(self.tokens[document])
        norm = 1 - B + B * len(self.tokens[document]) / self.mean_length if self.mean_length else 1
        found = sum(
            self.idf[term] * count[term] / (count[term] + K1 * norm)
            for term in asked & count.keys()
        )
        return found / self.mass(asked) if asked else math.nan

    def tf_idf(self, document: int) -> dict[str, float]:
        counts = Counter(self.tokens[document])
        return {term: (1 + math.log(tf)) * self.idf[term] for term, tf in counts.items()}

    def nearest(self, row: int, document: int, compare: Value) -> float:
        own = [int(p) for p in self.case.block.positives[row] if p != PADDING][: self.references]
        values = [compare(positive, document) for positive in own if positive != document]
        return max((value for value in values if not math.isnan(value)), default=math.nan)

    def likeness(self, row: int, document: int) -> float:
        vectors = self.case.vectors.astype(float)
        return self.nearest(row, document, lambda p, d: float(np.dot(vectors[p], vectors[d])))

    def likeness_terms(self, row: int, document: int) -> float:
        def cosine(positive: int, other: int) -> float:
            left, right = self.tf_idf(positive), self.tf_idf(other)
            if not left or not right:
                return math.nan
            dot = sum(left[term] * right[term] for term in left.keys() & right.keys())
            return dot / math.hypot(*left.values()) / math.hypot(*right.values())

        return self.nearest(row, document, cosine)

    def share(self, whole: int, other: int) -> float:
        said = set(self.tokens[whole])
        return self.mass(said & set(self.tokens[other])) / self.mass(said) if said else math.nan

    def containment(self, row: int, document: int) -> float:
        return self.nearest(row, document, self.share)

    def contained(self, row: int, document: int) -> float:
        return self.nearest(row, document, lambda positive, other: self.share(other, positive))

    def values(self, kind: str, documents: NDArray[np.int32]) -> NDArray[np.float64]:
        """Values of one kind for a table of documents, [Q, M]."""
        measure: Value = getattr(self, kind)
        values = [
            math.nan if document == PADDING else measure(row, int(document))
            for row in range(len(documents))
            for document in documents[row]
        ]
        return np.array(values).reshape(documents.shape)


@given(cases(), st.sampled_from([1, 8]))
def test_each_kind_agrees_with_plain_loops_for_candidates_and_positives(
    case: Case, references: int
) -> None:
    gathered, reference = gather(case.block, case.material(references)), Reference(case, references)
    for kind in TEXTUAL:
        for found, documents in (
            (gathered.columns[kind], case.block.documents),
            (gathered.positive_columns[kind], case.block.positives),
        ):
            assert found.dtype == np.float32
            expected = reference.values(kind, documents)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=kind)


def test_a_block_without_queries_or_positives_is_no_trouble() -> None:
    case = make_case(["red fox", "sea"], ["red den"], [[0]], [[1, 0]])
    assert gather(case.block.take(slice(0, 0)), case.material()).columns["coverage"].shape == (0, 2)
    found = gather(block_of(case.block.documents, [[PADDING]]), case.material()).columns
    assert np.isnan(found["likeness_terms"]).all() and np.isfinite(found["coverage"]).any()
    assert found.keys() == {*KINDS} - {"facts", "network"}, "kinds of a graph and of a network"


def test_a_network_compares_queries_with_candidates_and_positives() -> None:
    case = make_case(["red fox", "sea", "den"], ["red", "sea"], [[0], [1]], [[1, 2], [0]])
    vectors = np.eye(3, dtype=np.float32)
    by_network = ByNetwork(vectors, {"q0": vectors[1], "q1": (vectors[0] + vectors[1]) / 2})
    material = replace(case.material(), network=by_network)
    gathered = gather(case.block, material)
    np.testing.assert_array_equal(gathered.columns["network"], [[1, 0], [0.5, np.nan]])
    np.testing.assert_array_equal(gathered.positive_columns["network"], [[0], [0.5]])
    assert gather(case.block.take(slice(0, 0)), material).columns["network"].shape == (0, 2)


NO_GRAPH = pd.DataFrame({"head": [], "relation": [], "tail": []})


def corpus(*metadata: str) -> pd.DataFrame:
    ids = [f"d{i}" for i in range(len(metadata))]
    return pd.DataFrame({"document_id": ids, "metadata": metadata})


def test_a_fact_is_a_relation_and_a_tail_of_a_document_from_the_graph_or_the_metadata() -> None:
    edges = ["d0 see x", "d2 see x", "d2 is x", "d2 is x", "someone see x"]
    graph = pd.DataFrame([edge.split() for edge in edges], columns=NO_GRAPH.columns)
    red, blue = ["fox", "colour", "red"], ["fox", "colour", "blue"]
    metadata = [json.dumps({"triples": triples}) for triples in ([red, blue], None, [red, red])]
    for texts, table, counts in ((["{}"] * 3, graph, [1, 0, 2]), (metadata, NO_GRAPH, [2, 0, 1])):
        facts = facts_of(corpus(*texts), table)
        assert facts is not None and facts.toarray().sum(axis=1).tolist() == counts
        assert (facts[0] @ facts[2].T).toarray().item() == 1


@pytest.mark.parametrize(
    "graph", [NO_GRAPH, pd.DataFrame(), pd.DataFrame([["x", "y", "z"]], columns=NO_GRAPH.columns)]
)
def test_a_collection_may_have_none(graph: pd.DataFrame) -> None:
    assert facts_of(corpus("{}", '{"triples": []}'), graph) is None


@given(st.lists(st.frozensets(st.integers(0, 4)), min_size=4, max_size=4))
def test_shared_facts_are_the_largest_share_over_positives(stated: list[frozenset[int]]) -> None:
    triples = [json.dumps({"triples": [["s", "p", fact] for fact in each]}) for each in stated]
    block = block_of([[2, 3, -1]], [[0, 1]])
    terms = Terms.build(["a"] * 4, lambda texts: [text.split() for text in texts])
    facts = facts_of(corpus(*triples), NO_GRAPH)
    if facts is None:
        return
    found = gather(block, Material(terms, {"q0": "a"}, np.eye(4, dtype=np.float32), facts))

    def share(document: int, positives: tuple[int, ...]) -> float:
        compared = [stated[p] for p in positives if stated[p]]
        return max(
            (len(each & stated[document]) / len(each) for each in compared), default=math.nan
        )

    expected = [share(2, (0, 1)), share(3, (0, 1)), math.nan]
    np.testing.assert_allclose(found.columns["facts"][0], expected, rtol=1e-6)
    expected = [share(0, (1,)), share(1, (0,))]
    np.testing.assert_allclose(found.positive_columns["facts"][0], expected, rtol=1e-6)
