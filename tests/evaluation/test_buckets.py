"""Results by what training saw, and by hardness."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.evaluation.generalisation import LABELLED, NEW, UNLABELLED, buckets, trained_positives
from anmi.evaluation.metrics import by_bucket, evaluate, profile, summarise

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


def test_positives_are_those_of_the_splits_trained_on_and_promoted_ones() -> None:
    queries = pd.DataFrame({"query_id": ["t", "d", "e"], "split": ["train", "dev", "test"]})
    qrels = pd.concat([labels({"t": {"a"}, "d": {"b"}, "e": {"c"}}), labels({"t": {"x"}}, relevance=0)])
    rows = pd.DataFrame({"query_id": ["t", "d"], "positive_id": ["promoted", "of dev"]})
    assert trained_positives(queries, qrels, ["train"]) == {"a"}
    assert trained_positives(queries, qrels, ["train"], rows) == {"a", "promoted"}
    assert trained_positives(queries, qrels, ["train", "dev"], rows) == {"a", "b", "promoted", "of dev"}
    unused = queries[queries.query_id != "t"]
    assert trained_positives(unused, qrels, ["train"], rows) == set()


def results(ranks: list[int]) -> pd.DataFrame:
    """Query i has its only relevant document at the given rank of ten; 0 for not found."""
    qrels = pd.DataFrame({"query_id": [f"q{i}" for i in range(len(ranks))], "document_id": "d", "relevance": 1})
    run = [
        (f"q{i}", "d" if place == rank else f"x{place}", 20.0 - place)
        for i, rank in enumerate(ranks)
        for place in range(1, 11)
    ]
    return evaluate(qrels, pd.DataFrame(run, columns=["query_id", "document_id", "score"]), ks=(1, 5, 10))


def rated(*values: float) -> pd.Series:
    return pd.Series(values, index=[f"q{i}" for i in range(len(values))], dtype=float)


def test_each_bucket_is_summarised_as_if_it_were_all_there_is() -> None:
    per_query = results([1, 2, 4, 8, 0])
    table = by_bucket(per_query, rated(0.1, 0.2, 0.3, 0.7, 0.71))
    assert table.index.tolist() == ["easy", "medium", "hard", "all"]
    assert table.queries.tolist() == [2, 2, 1, 5]
    for name, ids in (("easy", ["q0", "q1"]), ("medium", ["q2", "q3"]), ("hard", ["q4"]), ("all", per_query.index)):
        alone = summarise(per_query.loc[ids])
        assert {k: v for k, v in table.loc[name].items() if k in alone} == pytest.approx(alone)
    assert table.loc["easy", ["rank_mean", "rank_median", "rank_min", "rank_max"]].tolist() == [1.5, 1.5, 1, 2]
    assert table.loc["easy", "mrr@10"] == pytest.approx(0.75)
    assert np.isnan(table.loc["hard", "rank_mean"])
    assert table.loc["hard", "rank_not_found"] == 1


def test_a_profile_falls_where_hard_queries_fail() -> None:
    draw = np.random.default_rng(0)
    hardness = draw.uniform(0, 1, 200)
    per_query = results([1 if h < u else 9 for h, u in zip(hardness, draw.uniform(0, 1, 200), strict=True)])
    table = profile(per_query, rated(*hardness), "mrr@10", groups=4)
    assert table.queries.tolist() == [50] * 4
    assert (table.hardness.diff().dropna() > 0).all()
    assert table.value.iloc[0] > table.value.iloc[-1] + 0.3
    assert ((table.low <= table.value) & (table.value <= table.high)).all()
    assert (table.value * table.queries).sum() / 200 == pytest.approx(per_query["mrr@10"].mean())
