"""What is planted, what stays known, and what the mining may see."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.evaluation.audit import Planting, plant

NO_COPIES: dict[str, str] = {}
NO_EQUIVALENTS = pd.DataFrame({"query_id": pd.Series(dtype=str), "document_id": pd.Series(dtype=str)})


def tables(labels: dict[str, str], **split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Queries and qrels from query → its documents, one letter each."""
    queries = pd.DataFrame({"query_id": list(labels), "text": [f"text of {name}" for name in labels]})
    queries["split"] = [split.get(name, "train") for name in labels]
    pairs = [(query, document, 1, "train") for query, documents in labels.items() for document in documents]
    return queries, pd.DataFrame(pairs, columns=["query_id", "document_id", "relevance", "split"])


def pairs(table: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(table.query_id, table.document_id, strict=True))


labels = st.dictionaries(
    st.sampled_from([f"q{i}" for i in range(8)]),
    st.sets(st.sampled_from("abcdefgh"), min_size=1).map(lambda found: "".join(sorted(found))),
    min_size=1,
)


@given(labels, st.integers(0, 5), st.sampled_from(["half", "all_but_one"]))
def test_half_or_one_of_the_positives_stay_known_and_nothing_is_lost(labelled, seed, hide):
    queries, qrels = tables(labelled)
    several = {query for query, documents in labelled.items() if len(documents) > 1}
    if not several:
        with pytest.raises(AnmiError, match="two positives"):
            plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, seed=seed)
        return
    planted = plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, hide=hide, seed=seed)
    assert set(planted.queries.query_id) == set(planted.truth.query_id) == several
    kept = {query: math.ceil(len(labelled[query]) / 2) if hide == "half" else 1 for query in several}
    assert planted.qrels.query_id.value_counts().to_dict() == kept
    assert not pairs(planted.qrels) & pairs(planted.truth)
    assert pairs(planted.qrels) | pairs(planted.truth) == {p for p in pairs(qrels) if p[0] in several}
    one = planted.queries.query_id.iloc[0]
    alone = plant(
        queries[queries.query_id == one], qrels[qrels.query_id == one][::-1], NO_EQUIVALENTS, NO_COPIES,
        hide=hide, seed=seed,
    )  # fmt: skip
    expected = planted.truth[planted.truth.query_id == one]
    assert pairs(alone.truth) == pairs(expected), "a query's draw depends on nothing but the query"


@pytest.fixture
def mixed() -> tuple[pd.DataFrame, ...]:
    """q0 has two positives and one equivalent, q1 one positive and two equivalents, q2 nothing, t0 is held out."""
    queries, qrels = tables({"q0": "ab", "q1": "c", "q2": "d", "t0": "efg"}, t0="test")
    rows = [("q0", "x"), ("q1", "y"), ("q1", "z"), ("t0", "x")]
    return queries, qrels, pd.DataFrame(rows, columns=["query_id", "document_id"])


def planted_kinds(planted: Planting) -> dict[str, dict[str, int]]:
    return {str(k): v.query_id.value_counts().to_dict() for k, v in planted.truth.groupby("kind")}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("auto", {"hidden": {"q0": 1}, "equivalent": {"q0": 1, "q1": 2}}),
        ("hidden", {"hidden": {"q0": 1}}),
        ("equivalents", {"equivalent": {"q0": 1, "q1": 2}}),
    ],
)
def test_kinds(mixed: tuple[pd.DataFrame, ...], kinds: str, expected: dict[str, dict[str, int]]) -> None:
    planted = plant(*mixed, NO_COPIES, kinds=kinds, seed=1)  # type: ignore[arg-type]
    assert planted_kinds(planted) == expected
    assert len(planted.qrels) == {"auto": 2, "hidden": 1, "equivalents": 3}[kinds]
    assert set(planted.queries.split) == {"train"}
    assert list(planted.qrels.columns) == list(mixed[1].columns)


def test_copies_of_a_text_are_one_document() -> None:
    """a and b are one text, so q0 has nothing to hide; x has a copy, which is planted, too; y copies a known text."""
    queries, qrels = tables({"q0": "ab", "q1": "a"})
    rows = [("q0", "x"), ("q1", "y"), ("q1", "z")]
    same = {"b": "a", "w": "x", "y": "a"}
    planted = plant(queries, qrels, pd.DataFrame(rows, columns=["query_id", "document_id"]), same, seed=1)
    assert pairs(planted.truth) == {("q0", "x"), ("q0", "w"), ("q1", "z")}
    assert pairs(planted.qrels) == {("q0", "a"), ("q0", "b"), ("q1", "a")}
    from_the_copy = plant(queries, qrels, pd.DataFrame({"query_id": ["q0"], "document_id": ["w"]}), same, seed=1)
    assert pairs(from_the_copy.truth) == {("q0", "w"), ("q0", "x")}


def test_the_cap_is_nested_and_keyed_by_the_seed() -> None:
    queries, qrels = tables({f"q{i}": "ab" for i in range(30)})
    kept = {
        (limit, seed): set(plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, limit=limit, seed=seed).truth.query_id)
        for limit in (5, 10, 99)
        for seed in (1, 2)
    }
    assert [len(kept[limit, 1]) for limit in (5, 10, 99)] == [5, 10, 30]
    assert kept[5, 1] < kept[10, 1]
    assert kept[5, 1] != kept[5, 2]


@pytest.mark.parametrize(("kinds", "need"), [("hidden", "two positives"), ("equivalents", "api_docs")])
def test_a_collection_that_offers_nothing_is_told_what_it_needs(kinds: str, need: str) -> None:
    queries, qrels = tables({"q0": "a", "q1": "b"})
    with pytest.raises(AnmiError, match=need):
        plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, kinds=kinds, seed=1)  # type: ignore[arg-type]
