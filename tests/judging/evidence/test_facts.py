"""Facts of documents, and those a candidate shares with a known positive."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import Candidates
from anmi.judging.evidence import Material, Terms, facts_of, gather

NO_GRAPH = pd.DataFrame({"head": [], "relation": [], "tail": []})


def corpus(*metadata: str) -> pd.DataFrame:
    return pd.DataFrame({"document_id": [f"d{i}" for i in range(len(metadata))], "metadata": metadata})


def test_a_fact_is_a_relation_and_a_tail_of_a_document() -> None:
    graph = pd.DataFrame(
        [["d0", "see", "x"], ["d2", "see", "x"], ["d2", "is", "x"], ["d2", "is", "x"], ["someone", "see", "x"]],
        columns=["head", "relation", "tail"],
    )
    facts = facts_of(corpus("{}", "{}", "{}"), graph)
    assert facts is not None
    assert facts.toarray().sum(axis=1).tolist() == [1, 0, 2]
    assert (facts[0] @ facts[2].T).toarray().item() == 1


def test_triples_of_the_metadata_are_facts_too() -> None:
    red, blue = ["fox", "colour", "red"], ["fox", "colour", "blue"]
    facts = facts_of(
        corpus(json.dumps({"triples": [red, blue]}), json.dumps({"triples": [red, red]}), '{"triples": null}'), NO_GRAPH
    )
    assert facts is not None
    assert facts.toarray().sum(axis=1).tolist() == [2, 1, 0]
    assert (facts[0] @ facts[1].T).toarray().item() == 1


@pytest.mark.parametrize("graph", [NO_GRAPH, pd.DataFrame(), pd.DataFrame([["x", "y", "z"]], columns=NO_GRAPH.columns)])
def test_a_collection_may_have_none(graph: pd.DataFrame) -> None:
    assert facts_of(corpus("{}", '{"triples": []}'), graph) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.frozensets(st.integers(0, 4)), min_size=4, max_size=4))
def test_shared_facts_are_the_largest_share_over_positives(stated: list[frozenset[int]]) -> None:
    triples = [json.dumps({"triples": [["s", "p", fact] for fact in each]}) for each in stated]
    block = Candidates(
        np.array(["q"]), np.array([[0, 1]], np.int32), np.array([[2, 3, -1]], np.int32), np.zeros((1, 3), np.uint8)
    )
    terms = Terms.build(["a"] * 4, lambda texts: [text.split() for text in texts])
    facts = facts_of(corpus(*triples), NO_GRAPH)
    if facts is None:
        return
    found = gather(block, Material(terms, {"q": "a"}, facts=facts), ["facts"])

    def share(document: int, positives: tuple[int, ...]) -> float:
        shares = [len(stated[p] & stated[document]) / len(stated[p]) for p in positives if stated[p] and p != document]
        return max(shares, default=math.nan)

    np.testing.assert_allclose(found.columns["facts"][0], [share(2, (0, 1)), share(3, (0, 1)), math.nan], rtol=1e-6)
    np.testing.assert_allclose(found.positive_columns["facts"][0], [share(0, (1,)), share(1, (0,))], rtol=1e-6)
