"""What nodes add to the rooms they call: checks of splits, verdicts of consistency, counts."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from tests.selection.conftest import with_lists

from anmi.candidates import Candidates, CandidateShards, ColumnShards
from anmi.corpus.types import empty
from anmi.errors import AnmiError
from anmi.files import plain
from anmi.pipelines.consistency.nodes import check_consistency, summarise_consistency
from anmi.pipelines.evaluation.nodes import (
    bucket_queries,
    compare_systems,
    describe_hardness,
    score_runs,
)
from anmi.pipelines.evaluation.search import run_systems
from anmi.pipelines.params import BM25Params, ConsistencyParams, EvaluationParams
from anmi.pipelines.selection.nodes import make_training_rows, select_negatives, summarise_selection
from anmi.pipelines.training.nodes import check_splits
from anmi.report.console import results_table
from anmi.search.fit import PART_COLUMNS
from anmi.selection.recipe import recipe_book

NONE_RELATED = empty("document_id", "other_id", "kind")
BOOK = recipe_book(
    {
        "nearest": {"description": "Nearest.", "negatives": 2, "steps": {"top": {"by": "dense"}}},
        "checked": {
            "description": "Of BM25.",
            "negatives": 2,
            "steps": {"consistency": {}, "top": {"by": "bm25"}},
        },
        "nothing": {
            "description": "None.",
            "steps": {"max_ratio": {"column": "dense", "max_ratio": 0.01}, "random": {}},
        },
    }
)

QRELS = pd.DataFrame(
    [("q0", "d0"), ("q0", "d5"), ("q1", "d1"), ("q2", "d2")], columns=["query_id", "document_id"]
)
QRELS["relevance"] = 1


def block() -> Candidates:
    return Candidates(
        query_ids=np.array(["q0", "q1", "q2"]),
        positives=np.array([[0, 5], [1, -1], [2, -1]], np.int32),
        documents=np.array([[1, 2, 3], [0, 2, 4], [3, 0, -1]], np.int32),
        source=np.array([[1, 2, 3], [1, 1, 2], [3, 2, 0]], np.uint8),
        columns={
            "dense": np.array([[0.5, 0.6, 0.4], [0.3, 0.2, 0.1], [0.7, 0.6, np.nan]], np.float32)
        },
        positive_columns={
            "dense": np.array([[0.9, 0.8], [0.9, np.nan], [0.9, np.nan]], np.float32),
            "bm25": np.array([[3, 9], [4, np.nan], [0, np.nan]], np.float32),
            "bm25_rank": np.array([[40, 10], [11, np.nan], [1, np.nan]], np.float32),
        },
        query_columns={"best_bm25": np.array([9, 4, 0]), "best_bm25_rank": np.array([10, 11, 1])},
    )


SHARDS = CandidateShards.of([block()])


def checked(shards: CandidateShards) -> ColumnShards:
    return check_consistency(shards, "checked", BOOK, ConsistencyParams(), BM25Params())


def selected(recipe: str) -> CandidateShards:
    """What a recipe that reads no judgment selects."""
    corpus = pd.DataFrame({"document_id": [f"d{i}" for i in range(100)]})
    added = {"consistency": checked(SHARDS)} | dict.fromkeys(
        ("evidence", "judgments", "ratings"), ColumnShards()
    )
    return select_negatives(
        SHARDS,
        corpus=corpus,
        new_documents=corpus[:0],
        recipe=recipe,
        recipes=BOOK,
        seed=1,
        **added,
    )


def rows_of(
    chosen: CandidateShards, corpus: pd.DataFrame, queries: pd.DataFrame, recipe: str
) -> pd.DataFrame:
    rows = make_training_rows(
        selection=chosen,
        corpus=corpus,
        queries=queries,
        qrels=QRELS,
        related_documents=NONE_RELATED,
        recipe=recipe,
        recipes=BOOK,
    )
    return with_lists(rows)


@pytest.fixture
def corpus() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in range(6)],
            "title": "",
            "text": [f"text {i}" for i in range(6)],
        }
    )


@pytest.fixture
def queries() -> pd.DataFrame:
    ids = ["q0", "q1", "q2", "t0"]
    return pd.DataFrame(
        {"query_id": ids, "text": [f"what is {i}" for i in ids], "split": ["train"] * 3 + ["test"]}
    )


def test_the_best_positive_decides_and_a_tie_of_zeros_is_no_match(queries: pd.DataFrame) -> None:
    (found,) = SHARDS.joined(checked(SHARDS))
    assert found.query_columns["positive_rank"].tolist() == [10, 11, 1]
    assert found.query_columns["consistent"].tolist() == [1, 0, 0]
    assert found.positive_columns["consistent"][:, 0].tolist() == [0, 0, 0]
    summary = summarise_consistency(SHARDS, checked(SHARDS))
    assert summary["pass_rate"] == pytest.approx(1 / 3)
    assert summary["median_positive_rank_of_failed"] == 6


def test_rows_are_what_was_selected(corpus: pd.DataFrame, queries: pd.DataFrame) -> None:
    chosen = selected("nearest")
    rows = rows_of(chosen, corpus, queries, "nearest")
    assert rows.negative_ids.tolist() == [["d2", "d1"], ["d2", "d1"], ["d0", "d2"], ["d3", "d0"]]
    assert rows.positive_id.tolist() == ["d0", "d5", "d1", "d2"]
    assert rows.negatives.iloc[0] == ["text 2", "text 1"]
    equivalents = pd.DataFrame({"query_id": ["q2"], "document_id": ["d3"]})
    qrels = pd.DataFrame({"query_id": ["q2"], "document_id": ["d2"], "relevance": [1]})
    told = queries.assign(metadata=['{"source": "a"}', '{"source": "a"}', "{}", "{}"])
    info = {"collection": "mine"}
    judge = {"mode": "transfer", "without": "mine", "fitted_on": ["other"], "models": []}
    given = {
        "selection": chosen,
        "rows": rows,
        "qrels": qrels,
        "queries": told,
        "info": info,
        "fused_judge": judge,
        "recipe": "nearest",
        "recipes": BOOK,
        "corpus": corpus,
    }
    summary = summarise_selection(**given, equivalents=equivalents)
    assert (summary["false_negatives"]["count"], summary["false_negatives"]["total"]) == (1, 6)
    assert summary["false_negatives"]["judge"] == {"without": "mine", "fitted_on": ["other"]}
    assert summary["coverage"] == 1
    counted = ("source", "queries", "passed", "failed", "rows", "examples", "negatives_mean")
    counts = [tuple(row[key] for key in counted) for row in summary["by_source"]]
    assert counts == [("a", 2, 1, 1, 3, 9, 2.0), ("mine", 1, 0, 1, 1, 3, 2.0)]
    assert sum(summary["origins"]["sources"].values()) == 6, "a query counts once"
    without = summarise_selection(**given, equivalents=equivalents.iloc[:0])
    assert without["false_negatives"] is None, "where the truth is not known, nothing is claimed"


def test_a_recipe_that_leaves_nothing_says_which_step(
    corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    with pytest.raises(AnmiError, match=r'"nothing" left no negative.*"max_ratio" rejected most'):
        rows_of(selected("nothing"), corpus, queries, "nothing")


@pytest.mark.parametrize(
    ("query_id", "text"), [("t0", "something"), ("other", "what is t0"), ("other", "What is T0?")]
)
def test_no_held_out_query_is_trained_on(query_id: str, text: str, queries: pd.DataFrame) -> None:
    rows = pd.DataFrame({"query_id": ["q0", query_id], "query": ["what is q0", text]})
    with pytest.raises(AnmiError, match="1 dev or test queries stand in the training rows"):
        check_splits(rows, queries)
    assert len(check_splits(rows.iloc[:1], queries)) == 1


def test_of_one_query_results_have_no_interval_and_are_given(
    corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    test = pd.DataFrame({"query_id": ["t0"], "text": "", "split": "test"})
    qrels = pd.DataFrame({"query_id": ["t0"], "document_id": "d1", "relevance": 1})
    runs = pd.DataFrame(
        {
            "query_id": "t0",
            "document_id": ["d1", "d1", "d2", "d1"],
            "score": [1.0, 1.0, 2.0, 1.0],
            "system": ["bm25", "zero_shot", "zero_shot", "nearest"],
        }
    )
    params = EvaluationParams(resamples=100)
    scores = score_runs(
        runs, corpus, pd.concat([queries, test]), qrels, pseudo_queries=None, params=params
    )
    table, comparisons, flat = compare_systems(
        scores=scores,
        info={"collection": "mine"},
        query_buckets=pd.DataFrame({"query_id": ["t0"], "bucket": "unlabelled", "asked_by": "t0"}),
        encoder="static",
        recipe="nearest",
        params=params,
        seed=1,
    )
    assert table[["low", "high"]].isna().all(axis=None)
    assert comparisons[["low", "high"]].isna().all(axis=None)
    assert flat["all"]["nearest.mrr@10"] == 1
    assert flat["all"]["zero_shot.mrr@10"] == 0.5
    # As they come back from JSON, which writes null.
    read = [pd.DataFrame(plain(found.to_dict("records"))) for found in (table, comparisons)]
    shown = Console(width=120, record=True, file=io.StringIO())
    shown.print(results_table(*read))
    assert "0.631" in shown.export_text()


def test_systems_are_compared_on_the_queries_of_one_split(
    corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    test = pd.DataFrame({"query_id": [f"t{i}" for i in range(8)], "text": "", "split": "test"})
    asked = pd.concat([queries.iloc[:3], test], ignore_index=True)
    qrels = pd.DataFrame({"query_id": asked.query_id, "document_id": "d1", "relevance": 1})
    ranks = {"zero_shot": 2, "nearest": 1, "hybrid": 1}
    runs = pd.DataFrame(
        [
            {
                "query_id": query,
                "document_id": "d1" if rank == best else f"x{rank}",
                "score": -rank,
                "system": system,
            }
            for system, best in ranks.items()
            for query in test.query_id
            for rank in (1, 2, 3)
        ]
    )
    params = EvaluationParams(resamples=100)
    given = {"pseudo_queries": None, "params": params, "recipe": "nearest"}
    scores = score_runs(runs, corpus, asked, qrels, **given)
    assert len(scores) == 4 * 8, "no training query is scored, and BM25, which found nothing, is"
    copied = pd.concat([corpus, corpus.iloc[:1].assign(document_id="c1")], ignore_index=True)
    copied["copy_of"] = copied.document_id.replace("c1", "d1")
    once = score_runs(runs, copied, asked, qrels.assign(document_id="c1"), **given)
    means = once.groupby("system", sort=False)[["mrr@10", "plain_mrr@10"]].mean()
    assert list(means.itertuples(name=None)) == [
        ("bm25", 0, 0),
        ("zero_shot", 0.5, pytest.approx(1 / 3)),
        ("nearest", 1, 0.5),
        ("hybrid", 1, 0.5),
    ]
    buckets = pd.DataFrame(
        {
            "query_id": test.query_id,
            "bucket": ["labelled"] * 3 + ["unlabelled"] * 5,
            "asked_by": list("aabcccde"),
        }
    )
    table, comparisons, flat = compare_systems(
        scores=scores,
        info={"collection": "mine"},
        query_buckets=buckets,
        encoder="static",
        recipe="nearest",
        params=params,
        seed=1,
    )
    assert table[table.bucket == "unlabelled"].queries.unique().tolist() == [5]
    assert set(table[table.bucket != "all"].metric) == {
        "ndcg@10",
        "mrr@10",
        "recall@10",
        "recall@100",
    }
    assert set(comparisons[comparisons.bucket == "labelled"].metric) == {"ndcg@10"}
    assert flat["unlabelled"]["bm25.mrr@10"] == 0
    table, comparisons = (found[found.bucket == "all"] for found in (table, comparisons))
    value = table.set_index(["recipe", "metric"]).value
    assert [value[system, "mrr@10"] for system in ("bm25", *ranks)] == [0, 0.5, 1, 1]
    gain = comparisons.set_index(["system", "baseline", "metric"]).difference
    assert gain["nearest", "zero_shot", "mrr@10"] == pytest.approx(0.5)
    assert [
        gain["hybrid", name, "mrr@10"] for name in ("bm25", *ranks) if name != "hybrid"
    ] == pytest.approx([1, 1 / 2, 0])
    assert flat["all"]["nearest.ndcg@10"] == pytest.approx(1)
    p_value = comparisons.set_index(["system", "baseline", "metric"]).p_value
    assert p_value["nearest", "zero_shot", "mrr@10"] == 2 / 2**5, (
        "of five documents that ask there are as many signs"
    )


def bucketed(
    summary: dict[str, Any],
    pseudo: pd.DataFrame | None = None,
    new: str = "",
    has_test_labels: bool = False,
) -> dict[str, tuple[str, str]]:
    """The buckets of three test queries: of a labelled document, a promoted one, and one that nothing is said of."""
    made = pd.DataFrame(
        {"document_id": ["a", "b", "c"], "title": "", "text": ["one", "two", "three"]}
    )
    asked = pd.DataFrame(
        {"query_id": ["t", "x", "y", "z"], "text": "?", "split": ["train", "test", "test", "test"]}
    )
    qrels = pd.DataFrame(
        {"query_id": ["t", "x", "y", "z"], "document_id": ["a", "a", "b", "c"], "relevance": 1}
    )
    scored = ["x", "y", "z"] * 2
    if pseudo is not None:
        scored = pseudo.query_id.tolist() + ["z"] * has_test_labels
        qrels = qrels[qrels.query_id.isin(["t"] + ["z"] * has_test_labels)]
    scores = pd.DataFrame({"query_id": scored})
    found = bucket_queries(
        scores=scores,
        corpus=made,
        queries=asked,
        qrels=qrels,
        pseudo_queries=made.iloc[:0].assign(query_id="", split="") if pseudo is None else pseudo,
        training_rows=pd.DataFrame({"query_id": ["t", "t"], "positive_id": ["a", "b"]}),
        training_summary=summary,
        new_documents=pd.DataFrame({"document_id": list(new)}),
        seed=1,
    )
    return {query: (bucket, asked_by) for query, bucket, asked_by in found.itertuples(index=False)}


def test_queries_are_told_apart_by_what_the_run_was_trained_on() -> None:
    assert bucketed({}) == {
        "x": ("labelled", "x"),
        "y": ("labelled", "y"),
        "z": ("unlabelled", "z"),
    }
    assert bucketed({}, new="c")["z"] == ("new", "z")
    assert bucketed({"options": {"labels": 0.0}}, new="abc") == {
        name: ("new", name) for name in "xyz"
    }
    # A pseudo-query that stands in for a test query is about its document.
    pseudo = pd.DataFrame(
        {
            "query_id": ["title:0:a", "title:0:c"],
            "text": "?",
            "document_id": ["a", "c"],
            "positive_text": "rest",
            "kind": "title",
            "weight": 1.0,
            "split": "test",
        }
    )
    found = bucketed({}, pseudo, new="c")
    assert found == {"title:0:a": ("labelled", "a"), "title:0:c": ("new", "c")}
    beside = bucketed({}, pseudo, new="c", has_test_labels=True)
    assert beside == {
        "title:0:a": ("pseudo", "a"),
        "title:0:c": ("pseudo", "c"),
        "z": ("new", "z"),
    }


def test_no_mean_is_over_labelled_and_pseudo_queries() -> None:
    names = ["q1", "q2", *(f"title:0:{number}" for number in range(20))]
    values = [1.0, 0.5, *[0.0] * 20]
    scores = pd.DataFrame({"query_id": names, "ndcg@10": values, "rank": 1.0, "system": "bm25"})
    query_buckets = pd.DataFrame(
        {"query_id": names, "bucket": ["new"] * 2 + ["pseudo"] * 20, "asked_by": names}
    )
    metrics, _, by_bucket = compare_systems(
        pd.concat([scores, scores.assign(system="zero_shot"), scores.assign(system="mine")]),
        {"collection": "c"},
        query_buckets=query_buckets,
        encoder="static",
        recipe="mine",
        params=EvaluationParams(),
        seed=1,
    )
    values_by_bucket = metrics[metrics.recipe == "mine"].set_index("bucket")
    assert values_by_bucket.value.to_dict() == {"all": 0.75, "new": 0.75, "pseudo": 0.0}
    assert values_by_bucket.queries.to_dict() == {"all": 2, "new": 2, "pseudo": 20}
    assert by_bucket["all"]["bm25.ndcg@10"] == 0.75
    pseudo_queries = pd.DataFrame({"query_id": names[2:], "text": "title"})
    queries = pd.DataFrame({"query_id": names[:2], "text": "Which is it?"})
    found = describe_hardness(scores, queries, pseudo_queries, EvaluationParams())
    assert {row["queries"] for row in found["buckets"] if row["queries"]} == {2}


def test_where_no_query_is_asked_nothing_is_measured(
    corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    nothing: Any = None
    tables: Any = {
        "corpus": corpus,
        "queries": queries,
        "pseudo_queries": queries[:0].assign(document_id=""),
    }
    tables["qrels"] = pd.DataFrame({"query_id": ["q0"], "document_id": ["d0"], "relevance": 1})
    params = EvaluationParams()
    ranked = pd.DataFrame(PART_COLUMNS, index=[])
    runs = run_systems(ranked, nothing, **tables, recipe="", params=params, given_runs=nothing)
    scores = score_runs(runs, **tables, params=params, recipe="mine")
    assert len(runs) == len(scores) == 0 and "ndcg@10" in scores
    assert describe_hardness(scores, queries, tables["pseudo_queries"], params)["buckets"] == []
    made = compare_systems(
        scores, {}, query_buckets=scores, encoder="static", recipe="mine", params=params, seed=1
    )
    assert [len(part) for part in made] == [0, 0, 0]
