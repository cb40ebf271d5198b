"""Which documents mining and training must not see."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.splits import new_documents

COUNT = 400
CORPUS = pd.DataFrame({
    "document_id": [f"d{i}" for i in range(COUNT)], "title": "", "text": [f"text {i}" for i in range(COUNT)],
    "metadata": "{}",
})  # fmt: skip
NOTHING = pd.DataFrame({"document_id": [], "other_id": [], "kind": []}, dtype=str)


def asked(**splits: list[list[int]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Queries of each split, and the documents that answer each of them."""
    pairs = [(split, f"{split}{i}", own) for split, queries in splits.items() for i, own in enumerate(queries)]
    queries = pd.DataFrame([(name, f"what is {name}", split) for split, name, _ in pairs],
                           columns=["query_id", "text", "split"])  # fmt: skip
    labels = [(name, f"d{place}", 1) for _, name, own in pairs for place in own]
    return queries, pd.DataFrame(labels, columns=["query_id", "document_id", "relevance"])


def wholly_new(queries: pd.DataFrame, qrels: pd.DataFrame, new: set[str]) -> pd.Series:
    return qrels.document_id.isin(new).groupby(qrels.query_id).all().reindex(queries.query_id)


@given(
    st.lists(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=3), min_size=1, max_size=60),
    st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=60), st.integers(0, 60),
)  # fmt: skip
def test_no_training_label_names_them_or_what_is_related_to_them(
    test: list[list[int]], train: set[int], wanted: int
) -> None:
    queries, qrels = asked(train=[[place] for place in train], test=test, dev=[[place] for place in range(0, COUNT, 9)])
    # Chains of three documents of one text.
    related = pd.DataFrame({"document_id": [f"d{i}" for i in range(0, 30, 3) for _ in "ab"], "kind": "near"})
    related["other_id"] = [f"d{i + j}" for i in range(0, 30, 3) for j in (1, 2)]
    found = new_documents(CORPUS, queries, qrels, related, wanted=wanted, seed=1)
    labelled = set(qrels.document_id[qrels.query_id.str.startswith("train")])
    chosen = set(found.document_id)
    assert not chosen & labelled and found.document_id.is_unique and set(found.split) <= {"dev", "test"}
    for first, other in zip(related.document_id, related.other_id, strict=True):
        assert (first in chosen) == (other in chosen)
    assert all(count <= COUNT / 10 for count in found.split.value_counts())
    mixed = (table.sample(frac=1, random_state=3) for table in (CORPUS, queries, qrels))
    again = new_documents(*mixed, related, wanted=wanted, seed=1)
    assert dict(again.to_numpy().tolist()) == dict(found.to_numpy().tolist())


@pytest.mark.parametrize(("queries", "wanted", "new"), [(300, 100, 100), (60, 100, 30), (300, 20, 20), (300, 0, 0)])
def test_as_many_queries_get_new_documents_as_are_wanted_and_half_of_them_at_most(
    queries: int, wanted: int, new: int
) -> None:
    corpus = pd.concat([CORPUS, *(CORPUS.assign(document_id=f"x{n}" + CORPUS.document_id, text=f"{n} " + CORPUS.text)
                                  for n in range(3))])  # fmt: skip
    tables = asked(train=[[i] for i in range(300, 400)], test=[[i] for i in range(queries)], dev=[[399]])
    found = new_documents(corpus, *tables, NOTHING, wanted=wanted, seed=1)
    assert int(wholly_new(*tables, set(found.document_id)).sum()) == new == len(found)


def test_where_nobody_labelled_a_split_any_documents_are_new_for_it() -> None:
    queries, qrels = asked(train=[[0], [1]])
    found = new_documents(CORPUS, queries, qrels, NOTHING, wanted=100, seed=1)
    assert found.split.value_counts().to_dict() == {"dev": COUNT // 10, "test": COUNT // 10}
    for count, new in ((114, 11), (100, 10), (60, 10), (48, 9), (20, 4), (19, 0), (0, 0)):
        found = new_documents(CORPUS[:count], queries[:0], qrels[:0], NOTHING, wanted=100, seed=1)
        assert found.split.value_counts().to_dict() == ({"dev": new, "test": new} if new else {})
    assert found.columns.tolist() == ["document_id", "split"]


def test_labels_for_documents_that_are_absent_and_of_no_relevance_choose_nothing() -> None:
    queries, qrels = asked(train=[[1]], test=[[2], [3]], dev=[[4]])
    qrels = pd.concat([qrels, pd.DataFrame({"query_id": ["test0"], "document_id": ["absent"], "relevance": [1]})])
    qrels = pd.concat([qrels, pd.DataFrame({"query_id": ["train0"], "document_id": ["d3"], "relevance": [0]})])
    found = new_documents(CORPUS, queries, qrels, NOTHING, wanted=100, seed=1)
    assert np.isin(found.document_id, ["d2", "d4"]).all()
