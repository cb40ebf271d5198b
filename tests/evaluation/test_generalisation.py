"""Which test queries are about documents that training saw."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.evaluation.generalisation import LABELLED, NEW, UNLABELLED, buckets, trained_positives

DOCUMENTS = st.sets(st.sampled_from("abcdef"))


def labels(relevant: dict[str, set[str]], relevance: int = 1) -> pd.DataFrame:
    pairs = [(query, document) for query, own in relevant.items() for document in sorted(own)]
    return pd.DataFrame(pairs, columns=["query_id", "document_id"]).assign(relevance=relevance)


@given(st.dictionaries(st.sampled_from("xyz"), DOCUMENTS, min_size=1), DOCUMENTS, DOCUMENTS)
def test_every_query_has_the_bucket_of_the_definition(
    relevant: dict[str, set[str]], positives: set[str], new: set[str]
) -> None:
    found = buckets(list(relevant), labels(relevant), positives, new)
    assert found.index.tolist() == list(relevant)
    for query, own in relevant.items():
        expected = LABELLED if own & positives else NEW if own and own <= new else UNLABELLED
        assert found[query] == expected


def test_what_is_labelled_as_irrelevant_and_other_queries_do_not_count() -> None:
    qrels = pd.concat([labels({"x": {"a"}, "other": {"b"}}), labels({"x": {"b"}}, relevance=0)])
    assert buckets(["x"], qrels, {"b"}).tolist() == [UNLABELLED]
    assert buckets(["x"], qrels, {"b"}, {"a"}).tolist() == [NEW]


def test_positives_are_those_of_the_splits_trained_on_and_promoted_ones() -> None:
    queries = pd.DataFrame({"query_id": ["t", "d", "e"], "split": ["train", "dev", "test"]})
    qrels = pd.concat([labels({"t": {"a"}, "d": {"b"}, "e": {"c"}}), labels({"t": {"x"}}, relevance=0)])
    rows = pd.DataFrame({"query_id": ["t", "d"], "positive_id": ["promoted", "of dev"]})
    assert trained_positives(queries, qrels, ["train"]) == {"a"}
    assert trained_positives(queries, qrels, ["train"], rows) == {"a", "promoted"}
    assert trained_positives(queries, qrels, ["train", "dev"], rows) == {"a", "b", "promoted", "of dev"}
    unused = queries[queries.query_id != "t"]
    assert trained_positives(unused, qrels, ["train"], rows) == set()


def test_without_new_documents_no_query_is_about_one() -> None:
    assert buckets(["x", "y"], labels({"x": {"a"}, "y": {"b"}}), {"b"}).to_dict() == {"x": UNLABELLED, "y": LABELLED}


@pytest.mark.parametrize("asked", [[], ["x"]])
def test_a_query_without_labels_is_unlabelled(asked: list[str]) -> None:
    assert buckets(asked, labels({}), {"a"}, {"b"}).tolist() == [UNLABELLED] * len(asked)
