"""What nodes add to the rooms they call: checks of splits, verdicts of consistency, counts."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from rich.console import Console

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.mined import with_mined
from anmi.corpus.types import empty
from anmi.datasets.files import plain
from anmi.errors import AnmiError
from anmi.pipelines.bm25.nodes import build_bm25_index, search_bm25
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.consistency.nodes import check_consistency, summarise_consistency
from anmi.pipelines.consistency.params import ConsistencyParams
from anmi.pipelines.denoising.nodes import judge_by_evidence, judge_candidates
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.elo.nodes import rate_candidates
from anmi.pipelines.elo.params import EloParams
from anmi.pipelines.evaluation.nodes import compare_systems, run_systems, score_runs
from anmi.pipelines.evaluation.params import EvaluationParams
from anmi.pipelines.ingestion.nodes import find_changes
from anmi.pipelines.ingestion.params import IngestionParams
from anmi.pipelines.retrain.nodes import _SYSTEM as SYSTEM_OF_THE_CHAMPION
from anmi.pipelines.selection.nodes import (
    export_pairs,
    fit_recipe,
    make_training_rows,
    select_negatives,
    summarise_selection,
)
from anmi.pipelines.selection.params import SelectionParams
from anmi.pipelines.training.nodes import check_splits, rows_for_refit
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.report.console import results_table
from anmi.report.inputs import BM25, ZERO_SHOT
from anmi.selection.recipe import Recipe, RecipeBook, recipe_book
from anmi.store import Store

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


def test_the_best_positive_decides_and_a_tie_of_zeros_is_no_match(
    consistency: pd.DataFrame, queries: pd.DataFrame
) -> None:
    found = consistency.set_index("query_id")
    assert found.positive_rank.tolist() == [10, 11, 1]
    assert found.consistent.tolist() == [True, False, False]
    summary = summarise_consistency(consistency, queries)
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
    judge = {"mode": "transfer", "without": "mine", "fitted_on": ["other"], "models": []}
    summary = summarise_selection(chosen, rows, equivalents, qrels, told, info, judge, "nearest", BOOK)
    assert (summary["leak"]["count"], summary["leak"]["total"]) == (1, 8)
    assert summary["leak"]["judge"] == {"without": "mine", "fitted_on": ["other"]}
    assert summary["coverage"] == 1
    counted = ("source", "queries", "passed", "failed", "rows", "negatives_mean", "negatives_min", "negatives_max")
    assert [tuple(row[key] for key in counted) for row in summary["by_source"]] == [
        ("a", 2, 1, 1, 3, 2.0, 2, 2),
        ("mine", 1, 0, 1, 1, 2.0, 2, 2),
    ]
    assert sum(summary["origins"]["sources"].values()) == 8
    without = summarise_selection(chosen, rows, equivalents.iloc[:0], qrels, told, info, judge, "nearest", BOOK)
    assert without["leak"] is None, "where the truth is not known, nothing is claimed"


def test_a_recipe_that_leaves_nothing_says_which_step(
    consistency: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    chosen = select_negatives(CandidateShards.of([block().by_positive()]), consistency, "nothing", BOOK, 1)
    with pytest.raises(AnmiError, match=r'"nothing" left no negative.*"max_ratio" rejected most'):
        make_training_rows(chosen, corpus, queries, *NO_KIN, "nothing", BOOK)


@pytest.mark.parametrize(("query_id", "text"), [("t0", "something"), ("other", "what is t0"), ("other", "What is T0?")])
def test_no_held_out_query_is_trained_on(query_id: str, text: str, queries: pd.DataFrame) -> None:
    rows = pd.DataFrame({"query_id": ["q0", query_id], "query": ["what is q0", text]})
    with pytest.raises(AnmiError, match="1 dev or test queries stand in the training rows"):
        check_splits(rows, queries)
    assert len(check_splits(rows.iloc[:1], queries)) == 1


def with_dev(queries: pd.DataFrame, *ids: str) -> pd.DataFrame:
    """The queries, of which these are in dev, and mined."""
    queries = queries.assign(split=queries.split.mask(queries.query_id.isin(ids), "dev"))
    return with_mined(queries, 1.0, seed=1)


def test_a_dev_query_is_trained_on_as_such_and_a_test_query_never(queries: pd.DataFrame) -> None:
    queries = with_dev(queries, "q1")
    rows = pd.DataFrame({"query_id": ["q0", "q1"], "query": ["what is q0", "what is q1"], "split": ["train", "dev"]})
    assert len(check_splits(rows, queries)) == 2
    assert rows_for_refit(rows, queries).query_id.tolist() == ["q1"]
    with pytest.raises(AnmiError, match="1 dev or test queries stand in the training rows"):
        check_splits(rows.assign(split="train"), queries)
    for wrong in (rows.assign(query_id=["q0", "t0"]), rows.assign(query=["what is q0", "what is t0"])):
        with pytest.raises(AnmiError, match="1 test queries stand in the training rows"):
            check_splits(wrong, queries)


def test_a_refit_without_mined_dev_queries_says_how_to_get_them(queries: pd.DataFrame) -> None:
    rows = pd.DataFrame({"query_id": ["q0"], "query": ["what is q0"]})
    assert rows_for_refit(rows, queries).empty, "without dev queries there is nothing to ask for"
    assert rows_for_refit(rows, with_dev(queries, "q1")).empty, "a recipe may leave none"
    with pytest.raises(AnmiError, match=r"they were not mined: run all stages again .* training\.refit=false"):
        rows_for_refit(rows, with_dev(queries, "q1").assign(mined=False))


def test_no_model_is_evaluated_on_what_it_was_trained_on(corpus: pd.DataFrame, queries: pd.DataFrame) -> None:
    nothing: Any = None
    qrels = pd.DataFrame({"query_id": ["t0"], "document_id": ["d0"]})
    for trained in ({"trained_on": ["train", "dev"]}, {}):
        # One of an earlier release does not say what it was trained on, and knew train only.
        expected = "evaluation.split is dev, which the model was trained on" if trained else 'has no "dev" queries'
        with pytest.raises(AnmiError, match=expected):
            run_systems(
                nothing,
                nothing,
                corpus,
                queries,
                qrels,
                encoder="static",
                recipe="nearest",
                params=EvaluationParams(split="dev"),
                dense=nothing,
                store=nothing,
                training_summary=trained,
            )


def test_nothing_is_fitted_on_dev_queries_and_no_summary_counts_them(
    consistency: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    rated, told = CandidateShards.of([block().by_positive()]), with_dev(queries, "q2")
    alone = CandidateShards.of([block().by_positive().take(slice(0, 3))])
    fits = fit_recipe(rated, consistency, "mixed", MIXED, 1, told)
    assert fits == fit_recipe(alone, consistency, "mixed", MIXED, 1, told)
    assert fits != fit_recipe(rated, consistency, "mixed", MIXED, 1, queries)
    summary = summarise_consistency(consistency, told)
    assert (summary["queries"], summary["consistent"]) == (2, 1)
    found = {}
    for name, shards in (("with", rated), ("without", alone)):
        chosen = select_negatives(shards, consistency, "nearest", BOOK, 1)
        rows = make_training_rows(chosen, corpus, told, *NO_KIN, "nearest", BOOK)
        labels = pd.DataFrame({"query_id": ["q2"], "document_id": ["d2"], "relevance": [1]})
        equivalents = pd.DataFrame({"query_id": ["q2"], "document_id": ["d3"]})
        described = told.assign(metadata="{}")
        arguments = (labels, described, {"collection": "mine"}, {"mode": "none"}, "nearest", BOOK)
        found[name] = summarise_selection(chosen, rows, equivalents, *arguments), rows
    assert found["with"][1].split.tolist() == ["train"] * 3 + ["dev"]
    assert (found["with"][0].pop("dev_rows"), found["without"][0].pop("dev_rows")) == (1, 0)
    assert found["with"][0] == found["without"][0]


def test_other_trainers_get_rows_of_dev_queries_where_they_are_asked_for(queries: pd.DataFrame) -> None:
    told = with_dev(queries, "q1").assign(metadata="{}")
    rows = pd.DataFrame({
        "query_id": ["q0", "q1"], "query": ["what is q0", "what is q1"], "split": ["train", "dev"], "positive": "p",
        "positive_id": "d0", "negative_ids": [["d2"], ["d3"]], "negatives": [["n"], ["n"]],
    })  # fmt: skip
    documents = pd.DataFrame({"document_id": ["d0"], "metadata": "{}"})
    info = {"collection": "mine", "language": "en"}
    arguments = (rows, documents, told, info)
    assert export_pairs(*arguments, SelectionParams())["query"].tolist() == ["what is q0"]
    both = export_pairs(*arguments, SelectionParams(export_dev=True))
    assert both["query"].tolist() == ["what is q0", "what is q1"]


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


def test_where_no_candidate_was_found_no_step_is_to_be_loosened(
    corpus: pd.DataFrame, queries: pd.DataFrame, consistency: pd.DataFrame
) -> None:
    none = replace(
        block(),
        documents=np.full((3, 3), -1, np.int32),
        source=np.zeros((3, 3), np.uint8),
        columns={"dense": np.full((3, 3), np.nan, np.float32)},
    )
    chosen = select_negatives(CandidateShards.of([none.by_positive()]), consistency, "nothing", BOOK, 1)
    with pytest.raises(AnmiError, match=r"no document besides the positives.*more documents") as caught:
        make_training_rows(chosen, corpus, queries, *NO_KIN, "nothing", BOOK)
    assert "loosen" not in str(caught.value)


def test_of_one_query_results_have_no_interval_and_are_given(queries: pd.DataFrame) -> None:
    test = pd.DataFrame({"query_id": ["t0"], "text": "", "split": "test"})
    qrels = pd.DataFrame({"query_id": ["t0"], "document_id": "d1", "relevance": 1})
    runs = pd.DataFrame({
        "query_id": "t0", "document_id": ["d1", "d1", "d2", "d1"], "score": [1.0, 1.0, 2.0, 1.0],
        "system": ["bm25", "zero_shot", "zero_shot", "nearest"],
    })  # fmt: skip
    params = EvaluationParams(resamples=100)
    scores = score_runs(runs, pd.concat([queries, test]), qrels, params)
    table, comparisons, flat = compare_systems(
        scores, {"collection": "mine"}, encoder="static", recipe="nearest", params=params, seed=1
    )
    assert table[["low", "high"]].isna().all(axis=None)
    assert comparisons[["low", "high"]].isna().all(axis=None)
    assert flat["nearest.mrr@10"] == 1
    assert flat["zero_shot.mrr@10"] == 0.5
    # As they are, and as they come back from JSON, which writes null.
    read = [pd.DataFrame(plain(found.to_dict("records"))) for found in (table, comparisons)]
    for found in ((table, comparisons), read):
        shown = Console(width=120, record=True, file=io.StringIO())
        shown.print(results_table(*found))
        assert "+0.369 [no interval]" in shown.export_text()


def test_every_other_system_of_the_results_is_no_name_for_a_recipe() -> None:
    assert {BM25, ZERO_SHOT, SYSTEM_OF_THE_CHAMPION} == set(RecipeBook.reserved)


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
    table, comparisons, flat = compare_systems(
        scores, {"collection": "mine"}, encoder="static", recipe="nearest", params=params, seed=1
    )
    value = table.set_index(["recipe", "metric"]).value
    assert [value[system, "mrr@10"] for system in ranks] == pytest.approx([1 / 3, 1 / 2, 1])
    gain = comparisons.set_index(["system", "baseline", "metric"]).difference
    assert gain["nearest", "zero_shot", "mrr@10"] == pytest.approx(0.5)
    assert flat["nearest.ndcg@10"] == pytest.approx(1)


def test_a_collection_without_the_split_is_said_to_have_none(corpus: pd.DataFrame, queries: pd.DataFrame) -> None:
    nothing: Any = None
    qrels = pd.DataFrame({"query_id": ["q0"], "document_id": ["d0"]})
    with pytest.raises(AnmiError, match='no "test" queries'):
        run_systems(
            nothing,
            nothing,
            corpus,
            queries,
            qrels,
            encoder="static",
            recipe="nearest",
            params=EvaluationParams(),
            dense=nothing,
            store=nothing,
            training_summary={},
        )


def only(*mined: str, removed: tuple[str, ...] = ()) -> dict[str, Any]:
    """What ``find_changes`` says where a few queries are mined."""
    return {"mined": "changed", "queries": list(mined), "removed": list(removed), "documents_changed": []}


def test_of_a_collection_that_changed_only_what_changed_is_searched() -> None:
    things = ["fox", "whale", "owl", "pine", "river"]
    corpus = pd.DataFrame({"document_id": things, "title": "", "text": [f"a {a} beside a {b}" for a, b in zip(
        things, [*things[1:], things[0]], strict=True)]})  # fmt: skip
    splits = ["train"] * 4 + ["test"]
    queries = pd.DataFrame(
        {"query_id": [f"q{i}" for i in range(5)], "text": [f"which {t}?" for t in things], "split": splits}
    )
    qrels = pd.DataFrame({"query_id": queries.query_id, "document_id": things, "relevance": 1})
    params = BM25Params(depth=3, shard=3)
    index = build_bm25_index(corpus, {"language": "en"}, params)
    arguments = (index, corpus, queries, qrels, NO_KIN[1], params)
    everything = search_bm25(*arguments).whole()
    # Dev queries come last, as those for training are not to depend on them; a test query never comes.
    with_dev = queries.assign(split=["dev", *splits[1:]], mined=True)
    assert search_bm25(index, corpus, with_dev, *arguments[3:]).whole().query_ids.tolist() == ["q1", "q2", "q3", "q0"]
    # A test query is not mined, whoever names it.
    found = search_bm25(*arguments, changes=only("q3", "q1", "q4")).whole()
    assert everything.query_ids.tolist() == ["q0", "q1", "q2", "q3"]
    assert found.query_ids.tolist() == ["q1", "q3"]
    one, other = (
        Candidates.from_bytes(everything.take(np.array([1, 3])).to_bytes()),
        Candidates.from_bytes(found.to_bytes()),
    )
    assert one.to_table().equals(other.to_table())
    assert other.filled.any()


def test_of_queries_that_are_not_mined_again_consistency_is_as_it_was(
    consistency: pd.DataFrame, queries: pd.DataFrame
) -> None:
    mined = block().take(np.array([2, 1]))
    mined.positive_columns["bm25"][:] = mined.positive_columns["bm25_rank"][:] = 5
    earlier = pd.concat([consistency, pd.DataFrame({"query_id": ["gone"], "positive_rank": [3], "consistent": [True]})])
    changes = only("q2", "q1", removed=("gone",))
    found = check_consistency(CandidateShards.of([mined]), ConsistencyParams(), changes, earlier)
    assert found.to_dict("list") == {
        "query_id": ["q0", "q2", "q1"],
        "positive_rank": [10, 5, 5],
        "consistent": [True, True, True],
    }
    assert found.index.tolist() == [0, 1, 2]
    assert found.dtypes.tolist() == consistency.dtypes.tolist()
    everything = check_consistency(CandidateShards.of([mined]), ConsistencyParams(), earlier_consistency=earlier)
    assert everything.query_id.tolist() == ["q2", "q1"], "where all is mined, nothing is kept"
    assert summarise_consistency(found, queries)["queries"] == 3


MIXED = recipe_book({
    "mixed": {"description": "", "steps": [{"simans": {"a": 1.0}}]},
})  # fmt: skip


def test_new_rows_are_chosen_by_what_was_fitted_when_all_was_mined(
    consistency: pd.DataFrame, queries: pd.DataFrame
) -> None:
    rated = CandidateShards.of([block().by_positive()])
    fits = fit_recipe(rated, consistency, "mixed", MIXED, 1, queries)
    (fit,) = fits["steps"]
    assert (fit["place"], fit["step"]) == (1, "simans") and fit["fitted"] > 0
    one = CandidateShards.of([block().by_positive().take(slice(0, 1))])
    alone = fit_recipe(one, consistency, "mixed", MIXED, 1, queries)
    assert alone["steps"][0]["fitted"] != fit["fitted"], "one row has another variance than all"
    kept = fit_recipe(one, consistency, "mixed", MIXED, 1, queries, only("q0"), fits)
    assert kept == fits
    with pytest.raises(AnmiError, match="recipe_fits of the last mining"):
        fit_recipe(one, consistency, "mixed", MIXED, 1, queries, only("q0"), {})
    whole = select_negatives(rated, consistency, "mixed", MIXED, 1).whole()
    again = select_negatives(rated, consistency, "mixed", MIXED, 1, fits=fits).whole()
    assert again.to_bytes() == whole.to_bytes()


def test_where_no_row_is_kept_consistency_is_that_of_what_was_mined(consistency: pd.DataFrame) -> None:
    found = check_consistency(CandidateShards.of([block()]), ConsistencyParams(), only("q0", "q1", "q2"), consistency)
    pd.testing.assert_frame_equal(found, consistency)


def test_rows_that_are_kept_stand_beside_new_ones_under_the_places_of_now(
    consistency: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame
) -> None:
    first = select_negatives(CandidateShards.of([block().by_positive()]), consistency, "nearest", BOOK, 1)
    before = make_training_rows(first, corpus, queries, *NO_KIN, "nearest", BOOK).set_index(["query_id", "positive_id"])
    contents = pd.DataFrame({"kind": "document", "id": corpus.document_id, "digest": "1"})
    # d4 goes, one comes, and they stand in another order; q1 is mined again, q2 is gone.
    texts = {**dict(zip(corpus.document_id, corpus.text, strict=True)), "new": "text new"}
    names = ["new", "d5", "d3", "d2", "d1", "d0"]
    now = pd.DataFrame({"document_id": names, "title": "", "text": [texts[name] for name in names]})
    again = Candidates(
        query_ids=np.array(["q1"]),
        positives=np.array([[names.index("d1")]], np.int32),
        documents=np.array([[names.index("new"), names.index("d0"), names.index("d2")]], np.int32),
        source=np.ones((1, 3), np.uint8),
        columns={"dense": np.array([[0.1, 0.3, 0.2]], np.float32)},
        positive_columns={name: np.ones((1, 1), np.float32) for name in ("dense", "bm25", "bm25_rank")},
    )
    changes = only("q1", removed=("q2",))
    known = check_consistency(CandidateShards.of([again]), ConsistencyParams(), changes, consistency)
    found = select_negatives(
        CandidateShards.of([again.by_positive()]), known, "nearest", BOOK, 1, changes=changes, corpus=now,
        earlier_contents=contents, earlier_selection=CandidateShards.of_parts(first.parts),
    )  # fmt: skip
    rows = make_training_rows(found, now, queries, *NO_KIN, "nearest", BOOK).set_index(["query_id", "positive_id"])
    assert rows.index.tolist() == [("q0", "d0"), ("q0", "d5"), ("q1", "d1")]
    kept = rows.loc[["q0"]]
    pd.testing.assert_frame_equal(kept, before.loc[["q0"], kept.columns])
    assert rows.loc[("q1", "d1"), "negative_ids"] == ["d0", "d2"]
    ranks = found.whole().query_columns["positive_rank"].tolist()
    assert ranks == [10, 10, 1], "of the kept as it was, of the other as it is"


class Nights:
    """Calls ``find_changes`` night after night on the small collection of this file, from which q0 to q2 are mined."""

    def __init__(self, corpus: pd.DataFrame, queries: pd.DataFrame, consistency: pd.DataFrame, store: Store) -> None:
        self.corpus, self.queries, self.store = corpus.assign(metadata="{}"), queries, store
        labels = [("q0", "d0"), ("q0", "d5"), ("q1", "d1"), ("q2", "d2")]
        self.qrels = pd.DataFrame(labels, columns=["query_id", "document_id"]).assign(relevance=1)
        # Negatives: d2 and d1 of q0, d0 and d2 of q1, d3 and d0 of q2.
        self.selection = select_negatives(CandidateShards.of([block().by_positive()]), consistency, "nearest", BOOK, 1)
        self.graph = pd.DataFrame([["d0", "see", "d1"]], columns=["head", "relation", "tail"])
        self.contents: pd.DataFrame | None = None
        self.changes: dict[str, Any] = {}

    def next(self, **options: Any) -> dict[str, Any]:
        given: dict[str, Any] = {
            "update": True, "encoder": "static", "recipe": "nearest", "most_changed": 1.0, "seed": 1, "teacher": {},
            "denoising": {}, "bm25": {},
        } | options  # fmt: skip
        self.contents, self.changes = find_changes(
            self.corpus, self.queries, self.qrels, self.graph, given["update"], "mine", given["encoder"],
            given["recipe"], BOOK, IngestionParams(most_changed=given["most_changed"]), BM25Params(**given["bm25"]),
            ConsistencyParams(), DenseParams(), DenoisingParams.model_validate(given["denoising"]), EloParams(),
            given["seed"], self.store, self.contents, self.changes, self.selection, given["teacher"],
        )  # fmt: skip
        return self.changes


@pytest.fixture
def nights(corpus: pd.DataFrame, queries: pd.DataFrame, consistency: pd.DataFrame, tmp_path: Path) -> Nights:
    return Nights(corpus, queries, consistency, Store(tmp_path))


@pytest.mark.parametrize("happens", ["removed", "corrected"])
# q2 has d3 for a negative; d4 was left over by the only query that has it, so the first one stands for all.
@pytest.mark.parametrize(("document", "mined"), [("d3", ["q2"]), ("d4", ["q0"])])
def test_a_query_is_mined_again_when_a_negative_of_it_is_removed_or_corrected(
    nights: Nights, document: str, mined: list[str], happens: str
) -> None:
    assert nights.next()["mined"] == "all"
    there = nights.corpus.document_id == document
    if happens == "removed":
        nights.corpus = nights.corpus[~there].reset_index(drop=True)
    else:
        nights.corpus.loc[there, "text"] = "a correction"
    found = nights.next()
    assert (found["queries"], found["removed"]) == (mined, [])
    assert found["documents_changed"] == ([document] if happens == "corrected" else [])
    assert found["counts"]["documents"] == {"added": 0, "changed": 0, "removed": 0} | {
        "changed" if happens == "corrected" else happens: 1
    }


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "no query changed"),
        ({"most_changed": 0.5}, "no query changed"),
        ({"bm25": {"shard": 7}}, "no query changed"),
        ({"update": False}, "not asked for"),
        ({"seed": 2}, "settings, code or models"),
        ({"recipe": "nothing"}, "settings, code or models"),
        ({"encoder": "minilm"}, "settings, code or models"),
        ({"bm25": {"depth": 7}}, "settings, code or models"),
        ({"teacher": {"folds": [{"fingerprint": "aa"}]}}, "the cross-encoders are not in"),
        ({"teacher": {"calibration": [{"slope": 1.0, "intercept": 0.0}]}}, "had no query, and so no calibration"),
    ],
    ids=str,
)
def test_all_is_mined_again_where_what_mined_is_another(nights: Nights, options: dict[str, Any], why: str) -> None:
    nights.next()
    found = nights.next(**options)
    assert why in found["why"]
    assert (found["queries"] is None) == (not why.startswith("no query"))


def test_another_graph_may_be_evidence_for_any_query(nights: Nights) -> None:
    nights.next()
    nights.graph = pd.concat([nights.graph, nights.graph.assign(tail="d2")])
    assert "settings, code or models" in nights.next()["why"]
