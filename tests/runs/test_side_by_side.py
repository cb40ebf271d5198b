"""Two runs side by side: what differs, and whether metrics differ by more than chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from anmi.errors import AnmiError
from anmi.report.inputs import HEADLINE_METRICS
from anmi.runs.side_by_side import changed_parameters, metric_rows, paired_queries, side_by_side

QUERIES = [f"q{i}" for i in range(8)]


def tables(values: Any, queries: list[str] = QUERIES, bucket: Any = "unseen") -> dict[str, pd.DataFrame]:
    scores = pd.DataFrame({"query_id": queries, "system": "trained", **dict.fromkeys(HEADLINE_METRICS, values)})
    return {
        "query_metrics": scores,
        "queries": pd.DataFrame({"query_id": queries, "text": [f"text of {query}" for query in queries]}),
        "qrels": pd.DataFrame({"query_id": queries, "document_id": "d", "relevance": 1}),
        "query_buckets": pd.DataFrame({"query_id": queries, "bucket": bucket}),
    }


def test_the_difference_is_paired_and_tested_as_scipy_does() -> None:
    random = np.random.default_rng(1)
    one, other = random.random(8), random.random(8)
    shuffled = tables(other)
    # In another order of queries it is the same.
    shuffled["query_metrics"] = shuffled["query_metrics"].sample(frac=1, random_state=3)
    rows = metric_rows(tables(one), shuffled, QUERIES, seed=1)
    (row,) = [row for row in rows if (row["metric"], row["bucket"]) == ("ndcg@10", "all")]
    expected = stats.permutation_test(
        (other, one), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    )
    assert row["p_value"] == pytest.approx(expected.pvalue)
    assert row["difference"] == pytest.approx((other - one).mean())
    assert (row["first"], row["second"]) == (pytest.approx(one.mean()), pytest.approx(other.mean()))
    assert row["low"] < row["difference"] < row["high"]


def test_a_query_counts_in_a_bucket_where_both_runs_have_it_there() -> None:
    first = ["unseen"] * 4 + ["seen"] * 4
    second = ["unseen"] * 6 + ["seen"] * 2
    rows = metric_rows(tables(0.1, bucket=first), tables(0.2, bucket=second), QUERIES, seed=1)
    counts = {row["bucket"]: row["queries"] for row in rows}
    assert counts == {"all": 8, "seen": 2, "unseen": 4}


def test_queries_are_the_same_by_id_text_and_labels() -> None:
    one, other = tables(0.1), tables(0.2, [f"q{i}" for i in range(2, 9)])
    assert paired_queries(one, other) == QUERIES[2:]
    other["queries"].loc[0, "text"] = "another question"
    other["qrels"].loc[1, "document_id"] = "another document"
    other["qrels"].loc[2, "relevance"] = 2
    assert paired_queries(one, other) == QUERIES[5:]
    del other["query_metrics"]
    assert paired_queries(one, other) == []


def test_pseudo_queries_stand_in_by_their_text_and_document() -> None:
    def unlabelled(text: str) -> dict[str, pd.DataFrame]:
        made = pd.DataFrame({"query_id": QUERIES, "text": text, "document_id": "d"})
        return {"query_metrics": tables(0.1)["query_metrics"], "pseudo_queries": made}

    assert paired_queries(unlabelled("a"), unlabelled("a")) == QUERIES
    assert paired_queries(unlabelled("a"), unlabelled("b")) == []


def test_without_a_common_query_there_are_means_and_no_difference() -> None:
    other = tables(0.5, ["x", "y"])
    rows = metric_rows(tables(0.25), other, [], seed=1)
    assert {row["bucket"] for row in rows} == {"all"}
    assert all((row["first"], row["second"]) == (0.25, 0.5) for row in rows)
    assert not any("difference" in row for row in rows)
    assert metric_rows({}, other, [], seed=1) == []


def test_of_the_recipes_only_the_chosen_ones_are_compared() -> None:
    recipes = {"a": {"negatives": 1}, "b": {"negatives": 2}, "c": {"negatives": 3}}
    first, second = ({"parameters": {"recipe": chosen, "recipes": recipes, "depth": 5}} for chosen in "ab")
    assert changed_parameters(first, second) == {
        "recipe": ["a", "b"], "recipes.a.negatives": [1, None], "recipes.b.negatives": [None, 2],
    }  # fmt: skip


def test_a_run_that_has_not_finished_is_refused() -> None:
    with pytest.raises(AnmiError, match="run r1 is killed: two finished runs"):
        side_by_side(None, [{"run_id": "r1", "status": "killed"}, {"run_id": "r2", "status": "finished"}], 1)
