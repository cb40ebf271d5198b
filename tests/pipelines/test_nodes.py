"""What nodes add to the rooms they call: checks of splits, verdicts of consistency, counts."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from tests.mined import recipe_book
from tests.pipelines.tables import NO_MARKS, NONE_RELATED, corpus_of, frame, labels_of
from tests.selection.conftest import with_lists

from anmi.candidates import Candidates, CandidateShards, ColumnShards
from anmi.engine import IN_PROCESS
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

STEPS: dict[str, Any] = {
    "nearest": {"top": {"by": "dense"}},
    "checked": {"consistency": {}, "top": {"by": "bm25"}},
    "nothing": {"max_ratio": {"column": "dense", "max_ratio": 0.01}, "random": {}},
}
BOOK = recipe_book(
    {name: {"description": "A.", "negatives": 2, "steps": steps} for name, steps in STEPS.items()}
)
QRELS = labels_of("q0 d0", "q0 d5", "q1 d1", "q2 d2")
CORPUS = corpus_of([f"text {i}" for i in range(6)])
QUERIES = frame(
    "query_id text split",
    *((f"q{i}", f"what is q{i}", "train") for i in range(3)),
    ("t0", "what is t0", "test"),
)
BLOCK = Candidates(
    query_ids=np.array(["q0", "q1", "q2"]),
    positives=np.array([[0, 5], [1, -1], [2, -1]], np.int32),
    documents=np.array([[1, 2, 3], [0, 2, 4], [3, 0, -1]], np.int32),
    source=np.array([[1, 2, 3], [1, 1, 2], [3, 2, 0]], np.uint8),
    columns={"dense": np.array([[0.5, 0.6, 0.4], [0.3, 0.2, 0.1], [0.7, 0.6, np.nan]], np.float32)},
    positive_columns={
        "dense": np.array([[0.9, 0.8], [0.9, np.nan], [0.9, np.nan]], np.float32),
        "bm25": np.array([[3, 9], [4, np.nan], [0, np.nan]], np.float32),
        "bm25_rank": np.array([[40, 10], [11, np.nan], [1, np.nan]], np.float32),
    },
    query_columns={"best_bm25": np.array([9, 4, 0]), "best_bm25_rank": np.array([10, 11, 1])},
)
SHARDS = CandidateShards.of([BLOCK])
FAST = EvaluationParams(resamples=100)
COMPARED: dict[str, Any] = {
    "info": {"collection": "mine"},
    "encoder": "static",
    "recipe": "nearest",
    "params": FAST,
    "seed": 1,
}


def checked() -> ColumnShards:
    return check_consistency(SHARDS, "checked", BOOK, ConsistencyParams(), BM25Params())


def selected(recipe: str) -> CandidateShards:
    """What a recipe that reads no judgment selects."""
    corpus = pd.DataFrame({"document_id": [f"d{i}" for i in range(100)]})
    unjudged = dict.fromkeys(("evidence", "judgments", "ratings"), ColumnShards())
    return select_negatives(
        SHARDS,
        corpus=corpus,
        new_documents=corpus[:0],
        recipe=recipe,
        recipes=BOOK,
        seed=1,
        engine=IN_PROCESS,
        dev=CandidateShards.of([]),
        consistency=checked(),
        **unjudged,
    )


def rows_of(selection: CandidateShards, recipe: str) -> pd.DataFrame:
    rows = make_training_rows(
        selection=selection,
        corpus=CORPUS,
        queries=QUERIES,
        qrels=QRELS,
        related_documents=NONE_RELATED,
        recipe=recipe,
        recipes=BOOK,
    )
    return with_lists(rows)


def test_the_best_positive_decides_and_a_tie_of_zeros_is_no_match() -> None:
    (block,) = SHARDS.joined(checked())
    assert block.query_columns["positive_rank"].tolist() == [10, 11, 1]
    assert block.query_columns["consistent"].tolist() == [1, 0, 0]
    assert block.positive_columns["consistent"][:, 0].tolist() == [0, 0, 0]
    summary = summarise_consistency(SHARDS, checked())
    assert summary["pass_rate"] == pytest.approx(1 / 3)
    assert summary["median_positive_rank_of_failed"] == 6


def test_rows_are_what_was_selected() -> None:
    selection = selected("nearest")
    rows = rows_of(selection, "nearest")
    assert rows.negative_ids.tolist() == [["d2", "d1"], ["d2", "d1"], ["d0", "d2"], ["d3", "d0"]]
    assert rows.positive_id.tolist() == ["d0", "d5", "d1", "d2"]
    assert rows.negatives.iloc[0] == ["text 2", "text 1"]
    equivalents = labels_of("q2 d3")[["query_id", "document_id"]]
    summarised: dict[str, Any] = {
        "selection": selection,
        "training_rows": rows,
        "qrels": labels_of("q2 d2"),
        "queries": QUERIES.assign(metadata=['{"source": "a"}'] * 2 + ["{}"] * 2),
        "info": {"collection": "mine"},
        "fused_judge": {"mode": "transfer", "without": "mine", "fitted_on": ["b"], "models": []},
        "recipe": "nearest",
        "recipes": BOOK,
        "corpus": CORPUS,
        "marks": NO_MARKS,
    }
    summary = summarise_selection(**summarised, equivalents=equivalents)
    assert (summary["false_negatives"]["count"], summary["false_negatives"]["total"]) == (1, 6)
    assert summary["false_negatives"]["judge"] == {"without": "mine", "fitted_on": ["b"]}
    assert summary["coverage"] == 1
    keys = ("source", "queries", "passed", "failed", "rows", "examples", "negatives_mean")
    counts = [tuple(row[key] for key in keys) for row in summary["by_source"]]
    assert counts == [("a", 2, 1, 1, 3, 9, 2.0), ("mine", 1, 0, 1, 1, 3, 2.0)]
    assert sum(summary["origins"]["sources"].values()) == 6, "a query counts once"
    without = summarise_selection(**summarised, equivalents=equivalents[:0])
    assert without["false_negatives"] is None, "where the truth is not known, nothing is claimed"


def test_a_recipe_that_leaves_nothing_says_which_step() -> None:
    with pytest.raises(AnmiError, match=r'"nothing" left no negative.*"max_ratio" rejected most'):
        rows_of(selected("nothing"), "nothing")


@pytest.mark.parametrize(
    ("query_id", "text"), [("t0", "something"), ("other", "what is t0"), ("other", "What is T0?")]
)
def test_no_held_out_query_is_trained_on(query_id: str, text: str) -> None:
    rows = pd.DataFrame({"query_id": ["q0", query_id], "query": ["what is q0", text]})
    with pytest.raises(AnmiError, match="1 dev or test queries stand in the training rows"):
        check_splits(rows, QUERIES)
    check_splits(rows[:1], QUERIES)


def test_of_one_query_results_have_no_interval_and_are_given() -> None:
    runs = frame(
        "query_id document_id score system",
        ("t0", "d1", 1.0, "bm25"),
        ("t0", "d1", 1.0, "zero_shot"),
        ("t0", "d2", 2.0, "zero_shot"),
        ("t0", "d1", 1.0, "nearest"),
    )
    scores = score_runs(runs, CORPUS, QUERIES, labels_of("t0 d1"), pseudo_queries=None, params=FAST)
    query_buckets = frame("query_id bucket asked_by", ("t0", "unlabelled", "t0"))
    table, comparisons, flat = compare_systems(
        query_metrics=scores, query_buckets=query_buckets, **COMPARED
    )
    assert table[["low", "high"]].isna().all(axis=None)
    assert comparisons[["low", "high"]].isna().all(axis=None)
    assert flat["all"]["nearest.mrr@10"] == 1
    assert flat["all"]["zero_shot.mrr@10"] == 0.5
    # As they come back from JSON, which writes null.
    read = [pd.DataFrame(plain(rows.to_dict("records"))) for rows in (table, comparisons)]
    shown = Console(width=120, record=True, file=io.StringIO())
    shown.print(results_table(*read))
    assert "0.631" in shown.export_text()


def test_systems_are_compared_on_the_queries_of_one_split() -> None:
    test = frame("query_id", *((f"t{i}",) for i in range(8)), text="", split="test")
    queries = pd.concat([QUERIES[:3], test], ignore_index=True)
    qrels = labels_of(*(f"{query_id} d1" for query_id in queries.query_id))
    best_ranks = {"zero_shot": 2, "nearest": 1, "hybrid": 1}
    rows = [
        (query_id, "d1" if rank == best else f"x{rank}", -rank, system)
        for system, best in best_ranks.items()
        for query_id in test.query_id
        for rank in (1, 2, 3)
    ]
    runs = frame("query_id document_id score system", *rows)
    settings: dict[str, Any] = {"pseudo_queries": None, "params": FAST, "recipe": "nearest"}
    scores = score_runs(runs, CORPUS, queries, qrels, **settings)
    assert len(scores) == 4 * 8, "no training query is scored, and BM25, which found nothing, is"
    copied = pd.concat([CORPUS, CORPUS[:1].assign(document_id="c1")], ignore_index=True)
    copied["copy_of"] = copied.document_id.replace("c1", "d1")
    once = score_runs(runs, copied, queries, qrels.assign(document_id="c1"), **settings)
    means = once.groupby("system", sort=False)[["mrr@10", "plain_mrr@10"]].mean()
    assert means["mrr@10"].to_dict() == {"bm25": 0, "zero_shot": 0.5, "nearest": 1, "hybrid": 1}
    assert means["plain_mrr@10"].tolist() == [0, pytest.approx(1 / 3), 0.5, 0.5]
    bucket = ["labelled"] * 3 + ["unlabelled"] * 5
    query_buckets = test[["query_id"]].assign(bucket=bucket, asked_by=list("aabcccde"))
    table, comparisons, flat = compare_systems(
        query_metrics=scores, query_buckets=query_buckets, **COMPARED
    )
    assert table[table.bucket == "unlabelled"].queries.unique().tolist() == [5]
    headline = {"ndcg@10", "mrr@10", "recall@10", "recall@100"}
    assert set(table[table.bucket != "all"].metric) == headline
    assert set(comparisons[comparisons.bucket == "labelled"].metric) == {"ndcg@10"}
    assert flat["unlabelled"]["bm25.mrr@10"] == 0
    assert flat["all"]["nearest.ndcg@10"] == pytest.approx(1)
    means = table[table.bucket == "all"].set_index(["recipe", "metric"]).value
    assert [means[system, "mrr@10"] for system in ("bm25", *best_ranks)] == [0, 0.5, 1, 1]
    tests = comparisons[comparisons.bucket == "all"].set_index(["system", "baseline", "metric"])
    gain = tests.difference
    assert gain["nearest", "zero_shot", "mrr@10"] == pytest.approx(0.5)
    baselines = ("bm25", "zero_shot", "nearest")
    gains = [gain["hybrid", baseline, "mrr@10"] for baseline in baselines]
    assert gains == pytest.approx([1, 1 / 2, 0])
    # Of five documents that ask there are as many signs.
    assert tests.p_value["nearest", "zero_shot", "mrr@10"] == 2 / 2**5


def bucketed(
    summary: dict[str, Any],
    pseudo: pd.DataFrame | None = None,
    new: str = "",
    has_test_labels: bool = False,
) -> dict[str, tuple[str, str]]:
    """The buckets of three test queries: of a labelled document, a promoted one, and another."""
    corpus = frame("document_id text", ("a", "one"), ("b", "two"), ("c", "three"), title="")
    splits = ["train", "test", "test", "test"]
    queries = pd.DataFrame({"query_id": list("txyz"), "text": "?", "split": splits})
    qrels = labels_of("t a", "x a", "y b", "z c")
    scored = ["x", "y", "z"] * 2
    if pseudo is not None:
        scored = pseudo.query_id.tolist() + ["z"] * has_test_labels
        qrels = qrels[qrels.query_id.isin(["t"] + ["z"] * has_test_labels)]
    no_pseudo = corpus[:0].assign(query_id="", split="")
    buckets = bucket_queries(
        query_metrics=pd.DataFrame({"query_id": scored}),
        corpus=corpus,
        queries=queries,
        qrels=qrels,
        pseudo_queries=no_pseudo if pseudo is None else pseudo,
        training_rows=frame("query_id positive_id", ("t", "a"), ("t", "b")),
        training_summary=summary,
        new_documents=pd.DataFrame({"document_id": list(new)}),
        seed=1,
    )
    return {query_id: (bucket, asked_by) for query_id, bucket, asked_by in buckets.to_numpy()}


def test_queries_are_told_apart_by_what_the_run_was_trained_on() -> None:
    expected = {"x": ("labelled", "x"), "y": ("labelled", "y"), "z": ("unlabelled", "z")}
    assert bucketed({}) == expected
    assert bucketed({}, new="c")["z"] == ("new", "z")
    unlabelled = bucketed({"options": {"labels": 0.0}}, new="abc")
    assert unlabelled == {name: ("new", name) for name in "xyz"}
    # A pseudo-query that stands in for a test query is about its document.
    constants = {"text": "?", "positive_text": "rest", "kind": "title", "weight": 1.0}
    names = [("title:0:a", "a"), ("title:0:c", "c")]
    pseudo = frame("query_id document_id", *names, **constants, split="test")
    stand_ins = bucketed({}, pseudo, new="c")
    assert stand_ins == {"title:0:a": ("labelled", "a"), "title:0:c": ("new", "c")}
    beside = bucketed({}, pseudo, new="c", has_test_labels=True)
    assert beside == {"title:0:a": ("pseudo", "a"), "title:0:c": ("pseudo", "c"), "z": ("new", "z")}


def test_no_mean_is_over_labelled_and_pseudo_queries() -> None:
    names = ["q1", "q2", *(f"title:0:{number}" for number in range(20))]
    ndcg = [1.0, 0.5, *[0.0] * 20]
    scores = pd.DataFrame({"query_id": names, "ndcg@10": ndcg, "rank": 1.0, "system": "bm25"})
    bucket = ["new"] * 2 + ["pseudo"] * 20
    query_buckets = pd.DataFrame({"query_id": names, "bucket": bucket, "asked_by": names})
    systems = [scores.assign(system=system) for system in ("bm25", "zero_shot", "nearest")]
    metrics, _, by_bucket = compare_systems(
        query_metrics=pd.concat(systems), query_buckets=query_buckets, **COMPARED
    )
    by_name = metrics[metrics.recipe == "nearest"].set_index("bucket")
    assert by_name.value.to_dict() == {"all": 0.75, "new": 0.75, "pseudo": 0.0}
    assert by_name.queries.to_dict() == {"all": 2, "new": 2, "pseudo": 20}
    assert by_bucket["all"]["bm25.ndcg@10"] == 0.75
    pseudo_queries = pd.DataFrame({"query_id": names[2:], "text": "title"})
    queries = pd.DataFrame({"query_id": names[:2], "text": "Which is it?"})
    by_hardness = describe_hardness(scores, queries, pseudo_queries, EvaluationParams())
    assert {row["queries"] for row in by_hardness["profile"]} == {2}


def test_where_no_query_is_asked_nothing_is_measured() -> None:
    nothing: Any = None
    tables: Any = {"corpus": CORPUS, "queries": QUERIES, "qrels": labels_of("q0 d0")}
    tables["pseudo_queries"] = QUERIES[:0].assign(document_id="")
    runs = run_systems(
        part_runs=pd.DataFrame(PART_COLUMNS, index=[]),
        measured_search=nothing,
        **tables,
        recipe="",
        params=FAST,
        given_runs=nothing,
    )
    scores = score_runs(runs, **tables, params=FAST, recipe="mine")
    assert len(runs) == len(scores) == 0 and "ndcg@10" in scores
    assert describe_hardness(scores, QUERIES, tables["pseudo_queries"], FAST)["profile"] == []
    compared = compare_systems(query_metrics=scores, query_buckets=scores, **COMPARED)
    assert [len(part) for part in compared] == [0, 0, 0]
