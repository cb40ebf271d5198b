"""What nodes add to the rooms they call: checks of splits, verdicts of consistency, counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.types import empty
from anmi.errors import AnmiError
from anmi.pipelines.consistency.nodes import check_consistency, summarise_consistency
from anmi.pipelines.consistency.params import ConsistencyParams
from anmi.pipelines.denoising.nodes import judge_by_evidence, judge_candidates
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.pipelines.elo.nodes import rate_candidates
from anmi.pipelines.elo.params import EloParams
from anmi.pipelines.evaluation.nodes import compare_systems, run_systems, score_runs
from anmi.pipelines.evaluation.params import EvaluationParams
from anmi.pipelines.selection.nodes import make_training_rows, select_negatives, summarise_selection
from anmi.pipelines.training.nodes import check_splits
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import Recipe, recipe_book

NO_KIN = (empty("document_id", "other_id", "kind"), empty("document_id", "duplicate_of", "kind"))
BOOK = recipe_book({
    "nearest": {"description": "Nearest.", "negatives": 2, "steps": [{"top": {"by": "dense"}}]},
    "nothing": {"description": "None.", "steps": [{"max_ratio": {"column": "dense", "max_ratio": 0.01}}, "random"]},
})  # fmt: skip


def block() -> Candidates:
    return Candidates(
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
    )


@pytest.fixture
def consistency() -> pd.DataFrame:
    return check_consistency(CandidateShards.of([block()]), ConsistencyParams())


@pytest.fixture
def corpus() -> pd.DataFrame:
    return pd.DataFrame(
        {"document_id": [f"d{i}" for i in range(6)], "title": "", "text": [f"text {i}" for i in range(6)]}
    )


@pytest.fixture
def queries() -> pd.DataFrame:
    ids = ["q0", "q1", "q2", "t0"]
    return pd.DataFrame({"query_id": ids, "text": [f"what is {i}" for i in ids], "split": ["train"] * 3 + ["test"]})


def test_the_best_positive_decides_and_a_tie_of_zeros_is_no_match(consistency: pd.DataFrame) -> None:
    found = consistency.set_index("query_id")
    assert found.positive_rank.tolist() == [10, 11, 1]
    assert found.consistent.tolist() == [True, False, False]
    summary = summarise_consistency(consistency)
    assert summary["pass_rate"] == pytest.approx(1 / 3)
    assert summary["median_positive_rank_of_failed"] == 6


def test_a_recipe_that_reads_no_judgment_costs_none(corpus: pd.DataFrame, queries: pd.DataFrame) -> None:
    nothing: Any = None
    shards, params = CandidateShards.of([block()]), DenoisingParams()
    evidence, fused_judge = judge_by_evidence(
        shards, nothing, nothing, nothing, corpus, queries, nothing, "nearest", BOOK, params, 1
    )
    assert evidence is shards
    assert fused_judge == {"mode": "none"}
    judged, summary = judge_candidates(evidence, fused_judge, corpus, queries, "nearest", BOOK, params, 1, nothing)
    assert judged is shards
    assert summary == {"judged_pairs": 0}
    rated, _ = rate_candidates(judged, "nearest", BOOK, EloParams(), 1)
    assert rated.whole().query_ids.tolist() == ["q0", "q0", "q1", "q2"], "one row per positive"


def test_rows_are_what_was_selected(consistency: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame) -> None:
    rated = CandidateShards.of([block().by_positive()])
    chosen = select_negatives(rated, consistency, "nearest", BOOK, 1)
    rows = make_training_rows(chosen, corpus, queries, *NO_KIN, "nearest", BOOK)
    assert rows.negative_ids.tolist() == [["d2", "d1"], ["d2", "d1"], ["d0", "d2"], ["d3", "d0"]]
    assert rows.positive_id.tolist() == ["d0", "d5", "d1", "d2"]
    assert rows.negatives.iloc[0] == ["text 2", "text 1"]
    equivalents = pd.DataFrame({"query_id": ["q2"], "document_id": ["d3"]})
    qrels = pd.DataFrame({"query_id": ["q2"], "document_id": ["d2"], "relevance": [1]})
    told = queries.assign(metadata=['{"source": "a"}', '{"source": "a"}', "{}", "{}"])
    info = {"collection": "mine"}
    summary = summarise_selection(chosen, rows, equivalents, qrels, told, info, "nearest", BOOK)
    assert (summary["leak"]["count"], summary["leak"]["total"]) == (1, 8)
    assert summary["coverage"] == 1
    counted = ("source", "queries", "passed", "failed", "rows", "negatives_mean", "negatives_min", "negatives_max")
    assert [tuple(row[key] for key in counted) for row in summary["by_source"]] == [
        ("a", 2, 1, 1, 3, 2.0, 2, 2),
        ("mine", 1, 0, 1, 1, 2.0, 2, 2),
    ]
    assert sum(summary["origins"]["sources"].values()) == 8
    without = summarise_selection(chosen, rows, equivalents.iloc[:0], qrels, told, info, "nearest", BOOK)
    assert without["leak"] is None, "where the truth is not known, nothing is claimed"


def test_a_recipe_that_leaves_nothing_says_which_step(
    consistency: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    chosen = select_negatives(CandidateShards.of([block().by_positive()]), consistency, "nothing", BOOK, 1)
    with pytest.raises(AnmiError, match=r'"nothing" left no negative.*"max_ratio" rejected most'):
        make_training_rows(chosen, corpus, queries, *NO_KIN, "nothing", BOOK)


@pytest.mark.parametrize(("query_id", "text"), [("t0", "something"), ("other", "what is t0")])
def test_no_held_out_query_is_trained_on(query_id: str, text: str, queries: pd.DataFrame) -> None:
    rows = pd.DataFrame({"query_id": ["q0", query_id], "query": ["what is q0", text]})
    with pytest.raises(AnmiError, match="1 dev or test queries stand in the training rows"):
        check_splits(rows, queries)
    assert len(check_splits(rows.iloc[:1], queries)) == 1


def test_what_is_asked_for_wins_over_the_recipe() -> None:
    recipe = Recipe(description="A recipe.", negatives=3, training={"loss": "debiased", "epochs": 2})
    options = merged_options(recipe, TrainingParams(options={"epochs": 9}))
    assert (options.loss.kind, options.epochs, options.negatives) == ("debiased", 9, 3)
    assert merged_options(recipe, TrainingParams(options={"negatives": 1})).negatives == 1


def test_an_option_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValidationError, match='did you mean "epochs"'):
        TrainingParams(options={"epoch": 3})
    with pytest.raises(AnmiError, match='did you mean "temperature"'):
        merged_options(Recipe(description="A recipe.", training={"temperatur": 1}), TrainingParams())


def test_a_curriculum_without_a_pool_is_refused_before_anything_is_mined():
    recipe = {"description": "A recipe.", "training": {"curriculum": "bandit"}}
    with pytest.raises(AnmiError, match=r'curriculum "bandit" .* mines 7 a row for 7 to be used; set its `pool`'):
        merged_options(Recipe(**recipe), TrainingParams())
    assert merged_options(Recipe(**recipe, pool=8), TrainingParams()).negatives == 7


def test_systems_are_compared_on_the_queries_of_one_split(queries: pd.DataFrame) -> None:
    test = pd.DataFrame({"query_id": [f"t{i}" for i in range(8)], "text": "", "split": "test"})
    asked = pd.concat([queries.iloc[:3], test], ignore_index=True)
    qrels = pd.DataFrame({"query_id": asked.query_id, "document_id": "d1", "relevance": 1})
    ranks = {"bm25": 3, "zero_shot": 2, "nearest": 1}
    runs = pd.DataFrame([
        {"query_id": query, "document_id": "d1" if rank == best else f"x{rank}", "score": -rank, "system": system}
        for system, best in ranks.items() for query in test.query_id for rank in (1, 2, 3)
    ])  # fmt: skip
    params = EvaluationParams(resamples=100)
    scores = score_runs(runs, asked, qrels, params)
    assert len(scores) == 3 * 8, "no training query is scored"
    table, comparisons, flat = compare_systems(scores, {"collection": "mine"}, "static", "nearest", params, 1)
    value = table.set_index(["recipe", "metric"]).value
    assert [value[system, "mrr@10"] for system in ranks] == pytest.approx([1 / 3, 1 / 2, 1])
    gain = comparisons.set_index(["system", "baseline", "metric"]).difference
    assert gain["nearest", "zero_shot", "mrr@10"] == pytest.approx(0.5)
    assert flat["nearest.ndcg@10"] == pytest.approx(1)


def test_a_collection_without_the_split_is_said_to_have_none(corpus: pd.DataFrame, queries: pd.DataFrame) -> None:
    nothing: Any = None
    qrels = pd.DataFrame({"query_id": ["q0"], "document_id": ["d0"]})
    with pytest.raises(AnmiError, match='no "test" queries'):
        run_systems(nothing, nothing, corpus, queries, qrels, "static", "nearest", EvaluationParams(), nothing, nothing)
