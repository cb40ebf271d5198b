"""Entities that rankings name, on a graph small enough to count by hand."""

from __future__ import annotations

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import KnowledgeGraph
from anmi.evaluation.factuality import linking, neighbours, uri_ranking

IDS = ["paris1", "paris2", "rome1", "rome_paris", "weather"]


def graph() -> KnowledgeGraph:
    entities = pd.DataFrame(
        {"uri": ["u:paris", "u:rome"], "label": ["Paris", "Rome"], "types": ['["City"]', '["Town"]']}
    )
    facts = pd.DataFrame(
        [
            ("paris1", "u:paris", "in", "France"), ("paris2", "u:paris", "mayor", "Anne"),
            ("rome1", "u:rome", "in", "Italy"), ("rome_paris", "u:rome", "twin", "u:paris"),
            ("rome_paris", "u:rome", "in", "Italy"), ("rome_paris", "u:paris", "in", "France"),
        ],
        columns=["document_id", "head", "relation", "tail"],
    )  # fmt: skip
    return KnowledgeGraph.from_tables(entities, facts[["head", "relation", "tail"]], facts, IDS)


def run_of(**rankings: list[str]) -> pd.DataFrame:
    rows = [(q, d, rank) for q, documents in rankings.items() for rank, d in enumerate(documents, 1)]
    return pd.DataFrame(rows, columns=["query_id", "document_id", "rank"])


def qrels_of(**documents: str) -> pd.DataFrame:
    return pd.DataFrame({"query_id": list(documents), "document_id": list(documents.values())})


def about() -> dict[str, int]:
    return dict(zip(IDS, graph().about.tolist(), strict=True))


def test_the_first_entity_decides_and_documents_about_none_are_passed_over() -> None:
    run = run_of(a=["weather", "paris2", "rome1"], b=["rome1", "rome_paris", "paris1"], c=["weather"])
    qrels = qrels_of(a="paris1", b="paris1", c="rome1", d="weather")
    found = linking(run, qrels, about())
    assert found.to_dict("index") == {
        "a": {"accuracy": 1.0, "mrr_10": 1.0},
        "b": {"accuracy": 0.0, "mrr_10": 0.5},
        "c": {"accuracy": 0.0, "mrr_10": 0.0},
    }


@given(st.data())
def test_the_ranking_of_entities_is_that_of_a_loop(data: st.DataObject) -> None:
    entity = {f"d{i}": data.draw(st.integers(-1, 3)) for i in range(8)}
    rankings = {q: data.draw(st.permutations(sorted(entity)))[: data.draw(st.integers(0, 8))] for q in "ab"}
    run = run_of(**rankings)
    shuffled = run.sample(frac=1, random_state=data.draw(st.integers(0, 99)))
    found = uri_ranking(shuffled, entity)
    for query, documents in rankings.items():
        expected = list(dict.fromkeys(entity[d] for d in documents if entity[d] >= 0))
        mine = found[found.query_id == query]
        assert mine.entity.tolist() == expected
        assert mine["rank"].tolist() == list(range(1, len(expected) + 1))


def test_neighbours_are_told_by_label_facts_and_entity() -> None:
    run = run_of(a=["rome_paris", "paris2", "weather", "paris1", "rome1"], b=["paris1", "weather"], other=["paris1"])
    near = neighbours(run, qrels_of(a="paris1", b="weather"), graph(), IDS, depth=4)
    columns = ["document_id", "own", "entity", "right", "entails", "same_uri"]
    assert near[near.query_id == "a"][columns].to_numpy().tolist() == [
        ["rome_paris", 0, 1, False, True, False], ["paris2", 0, 0, False, False, True],
        ["weather", 0, -1, False, False, False], ["paris1", 0, 0, True, True, True],
    ]  # fmt: skip
    # A document that states nothing is entailed by none, and about nothing.
    assert near[near.query_id == "b"][columns].to_numpy().tolist() == [
        ["paris1", -1, 0, False, False, False],
        ["weather", -1, -1, True, False, False],
    ]
