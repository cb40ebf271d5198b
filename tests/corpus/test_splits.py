"""Splits, equivalents and new documents."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.related import new_documents
from anmi.seeds import choose, cut

NAMES = [f"q{i}" for i in range(4000)]


def test_shares_are_met():
    split = cut(NAMES, 42, dev_share=0.15, test_share=0.2)
    # Four standard deviations of a share of 4,000 draws are below 0.03.
    assert abs(np.mean(split == "dev") - 0.15) < 0.03
    assert abs(np.mean(split == "test") - 0.2) < 0.03


@given(st.permutations(NAMES[:50]), st.integers(0, 2**31))
def test_order_does_not_matter(order, seed):
    expected = dict(zip(NAMES, cut(NAMES[:50], seed, dev_share=0.3, test_share=0.3), strict=False))
    assert [expected[name] for name in order] == cut(order, seed, dev_share=0.3, test_share=0.3).tolist()
    chosen = {name for name, kept in zip(NAMES, choose(NAMES[:50], 7, seed), strict=False) if kept}
    assert {name for name, kept in zip(order, choose(order, 7, seed), strict=True) if kept} == chosen


@given(st.lists(st.sampled_from(NAMES[:20]), max_size=40), st.integers(0, 2**31))
def test_equal_texts_share_a_split_and_move_no_other(texts, seed):
    split = dict(zip(NAMES[:20], cut(NAMES[:20], seed, dev_share=0.3, test_share=0.3), strict=True))
    assert cut(texts, seed, dev_share=0.3, test_share=0.3).tolist() == [split[text] for text in texts]


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
    tables = asked(train=[[i] for i in range(300, 400)], test=[[i] for i in range(queries)], dev=[[399]] * 20)
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
    found = new_documents(CORPUS, *asked(dev=[[0]] * 19), NOTHING, wanted=100, seed=1)
    assert (found.split == "dev").sum() == COUNT // 10, "nineteen dev queries are too few"


@pytest.mark.parametrize(("files", "new"), [(40, 8), (12, 2), (4, 0)])
def test_documents_are_counted_and_not_their_passages(files: int, new: int) -> None:
    queries, qrels = asked()
    parent = [f"file{i % files}" for i in range(COUNT)]
    found = new_documents(CORPUS.assign(parent=parent), queries, qrels, NOTHING, wanted=100, seed=1)
    of = found.document_id.map(dict(zip(CORPUS.document_id, parent, strict=True))).groupby(found.split).nunique()
    assert of.to_dict() == ({"dev": new, "test": new} if new else {})
    long = ["long"] * (COUNT // 2) + [f"file{i % files}" for i in range(COUNT // 2)]
    for seed in range(5):
        # Half of all the text is never held out.
        found = new_documents(CORPUS.assign(parent=long), queries, qrels, NOTHING, wanted=100, seed=seed)
        assert "d0" not in set(found.document_id)
