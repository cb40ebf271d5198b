"""Metrics by their definitions, and results by what training saw, and by hardness."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.evaluation.generalisation import LABELLED, NEW, UNLABELLED, buckets, trained_positives
from anmi.evaluation.metrics import evaluate, of_documents, profile, summarise, with_copies


def table(value, **queries):
    rows = [(q, d, v) for q, documents in queries.items() for d, v in documents.items()]
    return pd.DataFrame(rows, columns=["query_id", "document_id", value])


def qrels(**queries):
    return table("relevance", **queries)


def run(**queries):
    return table("score", **queries)


def slow_metrics(labels: dict[str, int], scores: dict[str, float], k: int) -> dict[str, float]:
    """One query, straight from the definitions; ties by document id, descending by bytes."""
    ranked = sorted(scores, key=lambda d: (np.float32(scores[d]), d.encode()), reverse=True)
    gains = [max(labels.get(d, 0), 0) for d in ranked[:k]]
    relevant = sum(grade > 0 for grade in labels.values())
    hits = [g > 0 for g in gains]
    ideal = sorted((g for g in labels.values() if g > 0), reverse=True)[:k]
    discounted = [
        sum(g / math.log2(i + 2) for i, g in enumerate(values)) for values in (gains, ideal)
    ]
    precision, recall = sum(hits) / k, sum(hits) / relevant if relevant else 0.0
    first = next((i + 1 for i, d in enumerate(ranked) if labels.get(d, 0) > 0), math.nan)
    average = sum(sum(hits[: i + 1]) / (i + 1) for i in range(len(hits)) if hits[i])
    return {
        f"ndcg@{k}": discounted[0] / discounted[1] if discounted[1] else 0.0,
        f"map@{k}": average / relevant if relevant else 0.0,
        f"mrr@{k}": 1 / first if first <= k else 0.0,
        f"recall@{k}": recall,
        f"precision@{k}": precision,
        f"accuracy@{k}": float(any(hits)),
        f"f2@{k}": 5 * precision * recall / (4 * precision + recall) if precision + recall else 0.0,
        "rank": float(first),
    }


DOCUMENTS = [f"d{i}" for i in range(12)] + ["é", "D1"]
LABELS = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 3), min_size=1, max_size=6)
SCORES = st.dictionaries(
    st.sampled_from(DOCUMENTS),
    st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 1e-12, 2.0]) | st.floats(-5, 5),
    max_size=14,
)


@given(st.lists(st.tuples(LABELS, SCORES), min_size=1, max_size=3))
def test_every_metric_matches_its_definition(cases):
    labels = {f"q{i}": case[0] for i, case in enumerate(cases)}
    scores = {f"q{i}": case[1] for i, case in enumerate(cases)}
    found = evaluate(qrels(**labels), run(**scores), ks=(1, 3, 10))
    for query, judged in labels.items():
        for k in (1, 3, 10):
            for name, value in slow_metrics(judged, scores[query], k).items():
                assert found.loc[query, name] == pytest.approx(value, abs=1e-9, nan_ok=True), (
                    query,
                    name,
                )


def test_queries_without_results_count_as_zero_and_unlabelled_ones_are_left_out():
    found = evaluate(qrels(q1={"a": 1}, q2={"a": 1}), run(q1={"a": 1.0}, q3={"a": 1.0}), ks=(1,))
    assert found.index.tolist() == ["q1", "q2"]
    assert found["ndcg@1"].tolist() == [1.0, 0.0]
    assert summarise(found)["ndcg@1"] == 0.5


def test_copies_are_one_result_and_each_by_itself_as_beir_counts():
    corpus = pd.DataFrame({"document_id": ["a", "copy", "x"], "copy_of": ["a", "a", "x"]})
    labels = qrels(q1={"copy": 3, "a": 1}, q2={"x": 1})
    ranking = run(q1={"x": 9, "a": 8}, q2={"a": 9, "x": 8})
    once = evaluate(of_documents(labels, corpus), ranking, ks=(1, 3))
    assert once["rank"].tolist() == [2, 2]
    assert once["recall@3"].tolist() == [1, 1]
    plain = evaluate(labels, with_copies(ranking, corpus), ks=(1, 3))
    assert plain["rank"].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("labels", "ranking", "message"),
    [
        (qrels(q={"a": 1}), run(q={"a": math.nan}), "query q, document a"),
        (qrels(q={"a": 1}), run(q={"a": math.inf}), "finite"),
        (qrels(q={"a": 0.5}), run(q={"a": 1.0}), "whole number"),
        (qrels(), run(q={"a": 1.0}), "no labels"),
        (qrels(q={"a": 1}), pd.concat([run(q={"a": 1.0})] * 2), "more than once"),
        (qrels(q={"a": 1}), run(q={"a": 1.0}).rename(columns={"score": "s"}), "lack score"),
    ],
)
def test_bad_tables_are_refused(labels, ranking, message):
    with pytest.raises(AnmiError, match=message):
        evaluate(labels, ranking)


SOME = st.sets(st.sampled_from("abcdef"))


def labels(relevant: dict[str, set[str]], relevance: int = 1) -> pd.DataFrame:
    pairs = [(query, document) for query, own in relevant.items() for document in sorted(own)]
    return pd.DataFrame(pairs, columns=["query_id", "document_id"]).assign(relevance=relevance)


@given(st.dictionaries(st.sampled_from("xyz"), SOME, min_size=1), SOME, SOME)
def test_every_query_has_the_bucket_of_the_definition(relevant, positives, new):
    found = buckets(list(relevant), labels(relevant), positives, new)
    assert found.index.tolist() == list(relevant)
    for query, own in relevant.items():
        expected = LABELLED if own & positives else NEW if own and own <= new else UNLABELLED
        assert found[query] == expected


def test_positives_are_those_of_the_splits_trained_on_and_promoted_ones() -> None:
    queries = pd.DataFrame({"query_id": ["t", "d", "e"], "split": ["train", "dev", "test"]})
    qrels = pd.concat(
        [labels({"t": {"a"}, "d": {"b"}, "e": {"c"}}), labels({"t": {"x"}}, relevance=0)]
    )
    rows = pd.DataFrame({"query_id": ["t", "d"], "positive_id": ["promoted", "of dev"]})
    assert trained_positives(queries, qrels, ["train"]) == {"a"}
    assert trained_positives(queries, qrels, ["train"], rows) == {"a", "promoted"}
    assert trained_positives(queries, qrels, ["train", "dev"], rows) == {
        "a",
        "b",
        "promoted",
        "of dev",
    }
    unused = queries[queries.query_id != "t"]
    assert trained_positives(unused, qrels, ["train"], rows) == set()


def results(ranks: list[int]) -> pd.DataFrame:
    """Query i has its only relevant document at the given rank of ten; 0 for not found."""
    found = {
        f"q{i}": {"d" if place == rank else f"x{place}": 20.0 - place for place in range(1, 11)}
        for i, rank in enumerate(ranks)
    }
    return evaluate(qrels(**{query: {"d": 1} for query in found}), run(**found), ks=(1, 5, 10))


def rated(*values: float) -> pd.Series:
    return pd.Series(values, index=[f"q{i}" for i in range(len(values))], dtype=float)


def test_a_profile_falls_where_hard_queries_fail() -> None:
    draw = np.random.default_rng(0)
    hardness = draw.uniform(0, 1, 200)
    per_query = results(
        [1 if h < u else 9 for h, u in zip(hardness, draw.uniform(0, 1, 200), strict=True)]
    )
    table = profile(per_query, rated(*hardness), "mrr@10", groups=4)
    own = per_query["mrr@10"].to_numpy()[np.argsort(hardness)].reshape(4, 50).mean(axis=1)
    assert table.queries.tolist() == [50] * 4 and table.value.tolist() == pytest.approx(own)
    assert (table.hardness.diff().dropna() > 0).all()
    assert ((table.low <= table.value) & (table.value <= table.high)).all() and own[0] > own[
        -1
    ] + 0.3
