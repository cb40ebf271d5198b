"""What retraining is wired of, and what its nodes do with what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.pipeline import Pipeline
from tests.pipelines.tables import corpus_of, frame, labels_of

from anmi.datasets.model_registry import (
    CHAMPION,
    MEASURED,
    ROLLED_BACK,
    SERVING,
    WEIGHTS,
    read_beside,
)
from anmi.pipelines.evaluation.search import Split, runs_of_parts
from anmi.pipelines.params import DenseParams, EvaluationParams, RetrainParams
from anmi.pipelines.retrain.nodes import (
    decide_promotion,
    evaluate_champion,
    fingerprint_of,
    rate_of,
    register_challenger,
    score_champion,
)
from anmi.pipelines.training.params import TrainingParams
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder, EncoderSettings, load_encoder
from anmi.retrieval.index import build_index
from anmi.retrieval.sparse.model import inference_free
from anmi.search import HybridSearch, Part
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

AUDITED = frame(
    "recipe false_negative_rate false_negative_rate_low false_negative_rate_high false_negatives"
    " negatives",
    ("mine", 0.01, 0.005, 0.02, 10, 1000),
    ("other", 0.5, 0.4, 0.6, 5, 10),
    failed="",
)
PAIRS = ["query_id", "document_id", "count"]
NOTHING_DRAWN = pd.DataFrame(columns=PAIRS)
FIRST = {"version": None, "rolled_back": {}}
PERFECT = pd.DataFrame({"query_id": ["q0", "q1"], "ndcg@10": 1.0, "system": "hybrid"})
BOOK = RecipeBook(mine={"description": "A recipe.", "negatives": 7, "steps": {"random": {}}})
EVALUATION = EvaluationParams(resamples=100)


def decided(
    trained: Path, champion: dict[str, Any], champion_metrics: pd.DataFrame, **changes: Any
) -> dict[str, Any]:
    """Ask the node with what a test does not vary."""
    metrics = changes.get("query_metrics", PERFECT)
    inputs: dict[str, Any] = {
        "query_metrics": metrics,
        "query_buckets": metrics[["query_id"]].assign(bucket="unlabelled"),
        "audit_recipes": AUDITED,
        "drawn_negatives": NOTHING_DRAWN,
        "equivalents": NOTHING_DRAWN,
        "qrels": labels_of("q0 own"),
        "recipe": "mine",
        "recipes": BOOK,
        "training": TrainingParams(),
        "params": RetrainParams(),
        "evaluation": EVALUATION,
        "seed": 1,
    }
    return decide_promotion(
        champion=champion,
        champion_metrics=champion_metrics,
        measured_model=trained,
        **inputs | changes,
    )


def decided_first(trained: Path, **changes: Any) -> dict[str, Any]:
    """Decide where there is no champion yet."""
    return decided(trained, FIRST, pd.DataFrame(), **changes)


@pytest.fixture(scope="module")
def retrain(project: Path) -> Pipeline:
    bootstrap_project(project)
    return pipelines["retrain"]


def test_it_does_all_that_a_run_does_and_audits(retrain: Pipeline) -> None:
    names = {node.name for node in retrain.nodes}
    assert {node.name for node in pipelines["__default__"].nodes} < names
    unlike = {node.name for node in pipelines["audit"].nodes} - names
    assert {name for name in unlike if name.removeprefix("audit.") not in names} == {
        "audit.scoring.gate"
    }


def test_the_planted_truth_only_decides_and_is_reported(retrain: Pipeline) -> None:
    after = {node.name for node in retrain.from_inputs("planted_truth").nodes}
    others = {name for name in after if not name.startswith(("audit.", "scoring."))}
    assert others == {
        "retrain.decide_promotion",
        "retrain.register_challenger",
        "retrain.report_retraining",
    }


def test_the_champion_is_looked_at_before_anything_is_mined(retrain: Pipeline) -> None:
    before = {node.name for node in retrain.to_nodes("champion.evaluate_champion").nodes}
    assert before == {"ingestion.ingest", "champion.evaluate_champion"}


def test_the_audit_judges_for_the_recipe_alone(retrain: Pipeline) -> None:
    whole = {node.name for node in retrain.nodes if "params:audit_judges_for" in node.inputs}
    assert whole == {"audit.dense.encode_collection", "audit.dense.retrieve"}, "retrieved for all"


CORPUS = corpus_of(["night", "day"])
QUERIES = frame(
    "query_id text split", ("q0", "night", "test"), ("q1", "day", "test"), ("q2", "x", "train")
)
QRELS = labels_of("q0 d0", "q1 d1", "q2 d1")
COLLECTION: dict[str, Any] = {"corpus": CORPUS, "queries": QUERIES, "qrels": QRELS}


@pytest.fixture
def trained(word_encoder: Callable[..., Any], tmp_path: Path) -> Path:
    """The folder of a trained model, where a run leaves it."""
    path = tmp_path / "2030-01-01T00.00.00.000Z" / "trained_model"
    word_encoder(["night", "day"]).save(str(path), create_model_card=False)
    return path


HYBRID = {
    "method": "convex",
    "weights": {"bm25": 0.75, "dense": 0.25},
    "depth": 9,
    "spreads": {"dense": 0.5},
}


ENCODER: dict[str, Any] = {"max_length": 256, "precision": "float32", "tokens_per_pass": 2048}


def part(name: str, model: Path, spread: float = 1.0) -> Part:
    """A retriever as a part of the search."""
    encoder = Encoder(EncoderSettings(encoder=str(model), **ENCODER), model.parent)
    index = build_index(encoder.encode(CORPUS.text.tolist(), "document"), ["d0", "d1"])
    return Part(name, index, encoder, spread)


def searching(model: Path, *more: Part, **weights: float) -> HybridSearch:
    """The search that a run leaves."""
    bm25 = Part("bm25", BM25Index.build(CORPUS.text.tolist(), "en", "whitespace"))
    parts = [bm25, part("dense", model, 0.5), *more]
    return HybridSearch.build(parts, CORPUS, weights=weights or HYBRID["weights"], depth=9)


def ranked_by_parts(search: HybridSearch) -> pd.DataFrame:
    """What the parts of today's run rank for the test queries."""
    return runs_of_parts(search, Split(CORPUS, QUERIES[:2], QRELS), 10)


def evaluated(registry: Any, params: RetrainParams, dense: DenseParams) -> Any:
    with TemporaryDirectory() as folder, Store(Path(folder)) as store:
        return evaluate_champion(
            **COLLECTION,
            collection="api_docs",
            params=params,
            registry=registry,
            evaluation=EVALUATION,
            dense=dense,
            store=store,
        )


def registered(registry: Any, measured: Path, trained: Path, **inputs: Any) -> dict[str, Any]:
    return register_challenger(
        trained_model=trained,
        measured_model=measured,
        info={"collection": "api_docs"},
        encoder="static",
        recipe="mine",
        registry=registry,
        **inputs,
    )


@pytest.fixture
def nightly(registry: Any, trained: Path) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """Go through the nodes of one night, and return decision and registration."""
    params = RetrainParams(model=f"anmi-{uuid4().hex[:8]}", rule={"min_queries": 2})
    search = searching(trained)

    def night(
        meanwhile: Callable[[], object] = lambda: None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        champion, profile, runs = evaluated(registry, params, DenseParams())
        assert profile == ({} if champion["version"] is None else {"terms": 3})
        scores = scored(runs, champion, ranked_by_parts(search), params)
        promotion = decided(trained, champion, scores, params=params)
        meanwhile()
        registration = registered(
            registry,
            trained,
            trained,
            promotion=promotion,
            champion=champion,
            training_profile={"terms": 3},
            dense=DenseParams(),
            search_index=search,
            measured_search=search,
        )
        return promotion, registration

    night.model = params.model  # type: ignore[attr-defined]
    return night


def scored(
    runs: pd.DataFrame, champion: dict[str, Any], part_runs: pd.DataFrame, params: RetrainParams
) -> pd.DataFrame:
    return score_champion(
        runs=runs,
        champion=champion,
        part_runs=part_runs,
        **COLLECTION,
        params=params,
        evaluation=EVALUATION,
    )


def test_nights_follow_each_other(nightly: Any, registry: Any) -> None:
    promotion, registration = nightly()
    assert (promotion["decision"], registration["champion"]) == ("promoted", 1)
    entry = registry.at(nightly.model, CHAMPION)
    assert [entry.tags[tag] for tag in ("recipe", "run_id")] == ["mine", "2030-01-01T00.00.00.000Z"]
    assert entry.tags["fingerprint"] == promotion["fingerprint"]
    promotion, registration = nightly()
    assert (promotion["decision"], promotion["champion"]) == ("promoted", 1)
    assert promotion["promotion"]["difference"] == 0
    assert (registration["champion"], registration["champion_before"]) == (2, 1)
    _, registration = nightly(meanwhile=nightly)
    assert (registration["decision"], registration["version"]) == ("kept", 4)
    assert registration["champion"] == 3


def test_what_was_rolled_back_is_not_promoted_again(nightly: Any, registry: Any) -> None:
    nightly()
    registry.note(registry.entry(nightly.model, 1), ROLLED_BACK, "2030-01-01")
    promotion, registration = nightly()
    assert (promotion["decision"], registration["champion"]) == ("kept", 1)
    assert "version 1, which was rolled back" in promotion["reasons"][-1]


def first_night(
    registry: Any,
    measured: Path,
    search: HybridSearch,
    dense: DenseParams,
    fetched: Path,
    trained: Path | None = None,
) -> tuple[dict[str, Any], Path, dict[str, Any], pd.DataFrame]:
    """Register a first champion.

    Return the decision, its files, and what the next night knows of it and its run.
    """
    params = RetrainParams(model=f"anmi-{uuid4().hex[:8]}")
    champion = FIRST | {"model": params.model}
    promotion = decided(measured, champion, pd.DataFrame(), params=params)
    registered(
        registry,
        measured,
        trained or measured,
        promotion=promotion,
        champion=champion,
        training_profile={},
        dense=dense,
        search_index=searching(trained) if trained else search,
        measured_search=search,
    )
    about, _, runs = evaluated(registry, params, dense)
    return promotion, registry.fetch(registry.at(params.model, CHAMPION), fetched), about, runs


def assert_scored_by(model: Any, runs: pd.DataFrame) -> None:
    expected = model.encode_query(["night", "day"]) @ model.encode_document(["night", "day"]).T
    scores = runs.sort_values(["query_id", "document_id"]).score.to_numpy().reshape(2, 2)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_a_champion_keeps_its_prompts_whatever_todays_challenger_is_trained_with(
    registry: Any, word_encoder: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "2030-01-01" / "trained_model"
    prompts = {"query": "query ", "document": "passage "}
    model = word_encoder(["night", "day", "query", "passage", "find"], prompts=prompts)
    model.save(str(folder), create_model_card=False)
    others = DenseParams(prompt_query="find ", prompt_document="", precision="float32")
    _, fetched, about, runs = first_night(
        registry, folder, searching(folder), others, tmp_path / "room"
    )
    assert read_beside(fetched, SERVING) == {
        "dimensions": None,
        "max_length": 256,
        "precision": "float32",
        "prompt_query": "query ",
        "prompt_document": "passage ",
        "hybrid": HYBRID,
    }
    assert_scored_by(model, runs)
    assert about["hybrid"] == HYBRID


def test_a_champion_is_compared_by_the_model_that_was_measured_and_serves_the_final_one(
    registry: Any, trained: Path, word_encoder: Any, tmp_path: Path
) -> None:
    served = tmp_path / "final" / "trained_model"
    word_encoder(["night", "day"], seed=1).save(str(served), create_model_card=False)
    promotion, fetched, _, runs = first_night(
        registry, trained, searching(trained), DenseParams(), tmp_path / "room", served
    )
    prints = [fingerprint_of(folder / WEIGHTS) for folder in (fetched, fetched / MEASURED)]
    assert prints == [fingerprint_of(served), fingerprint_of(trained)]
    assert promotion["fingerprint"] == prints[1]
    assert_scored_by(load_encoder(str(trained), trained.parent), runs)


def test_a_champion_keeps_its_companion(
    registry: Any, trained: Path, word_encoder: Any, tmp_path: Path
) -> None:
    alone = decided_first(trained)["fingerprint"]
    sparse = inference_free(word_encoder(["night", "day"]), CORPUS.text.tolist())
    sparse.save(str(trained / "companion"), create_model_card=False)
    companion = part("sparse", trained / "companion")
    search = searching(trained, companion, bm25=0.25, dense=0.25, sparse=0.5)
    promotion, folder, about, runs = first_night(
        registry, trained, search, DenseParams(), tmp_path / "room"
    )
    assert promotion["fingerprint"] != alone, "with a companion it is another challenger"
    assert set(about["hybrid"]["weights"]) == {"bm25", "dense", "sparse"}
    assert runs.groupby("retriever").size().to_dict() == {"dense": 4, "sparse": 2}
    assert (folder / "companion" / "MLmodel").is_file(), "MLflow serves it, too"
    for system in ("hybrid", "dense"):
        expected = search.ranked(["night", "day"], 2, system).documents.tolist()
        params = RetrainParams(rule={"system": system})
        scores = scored(runs, about, ranked_by_parts(search), params)
        ranks = [row.index(query) + 1 for query, row in enumerate(expected)]
        assert scores["mrr@10"].tolist() == [1 / rank for rank in ranks]


def test_a_champion_is_measured_with_the_parts_of_todays_run_that_need_no_training(
    registry: Any, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = part("network", trained)
    index: Any = network.index
    # It takes each document for the other, and outweighs those that are right.
    wrong = build_index(index.vectors()[::-1].copy(), ["d0", "d1"])
    network = replace(network, index=wrong)
    search = searching(trained, network, bm25=0.1, dense=0.1, network=0.8)
    _, _, about, runs = first_night(registry, trained, search, DenseParams(), tmp_path / "room")
    assert about["hybrid"]["spreads"] == {"dense": 0.5}, "others have those of the day"
    part_runs = ranked_by_parts(search)
    assert search.ranked(["night", "day"], 2).documents.tolist() == [[1, 0], [0, 1]]
    assert scored(runs, about, part_runs, RetrainParams())["mrr@10"].tolist() == [0.5, 0.5]
    assert "measured without" not in caplog.text
    without = part_runs[part_runs.part != "network"]
    assert scored(runs, about, without, RetrainParams())["mrr@10"].tolist() == [1, 1]
    assert "measured without its parts network" in caplog.text


def test_where_nothing_can_be_planted_labels_alone_decide(trained: Path) -> None:
    promotion = decided_first(trained, audit_recipes=pd.DataFrame())
    assert promotion["decision"] == "promoted"
    assert "planting measures no false negatives" in promotion["reasons"][1]


def test_promotion_goes_by_the_upper_end_of_the_interval_of_its_recipe(trained: Path) -> None:
    assert (rate_of(AUDITED, "mine").count, rate_of(AUDITED, "mine").negatives) == (10, 1000)
    assert "no row of recipe" in rate_of(AUDITED, "third").failed
    assert decided_first(trained)["decision"] == "promoted"
    doubted = decided_first(trained, audit_recipes=AUDITED.assign(false_negative_rate_high=0.06))
    assert doubted["decision"] == "kept"
    assert "10 are relevant (1.00%, 95 % interval over queries" in doubted["reasons"][1]


@pytest.mark.parametrize(
    ("relevant", "decision", "reason"),
    [
        ("d9", "promoted", "of 800 drawn negatives 0 are relevant (0.00%"),
        ("d1", "kept", "of 800 drawn negatives 100 are relevant (12.50%"),
        ("", "kept", "is not known: training drew its negatives from the whole"),
    ],
)
def test_a_recipe_that_draws_from_the_corpus_is_judged_by_what_it_drew(
    trained: Path, relevant: str, decision: str, reason: str
) -> None:
    """It chooses nothing before training, so an audit has no row of it."""
    training = {"sources": "mixed", "negatives": 4}
    book = RecipeBook(mine={"description": "Drawn.", "negatives": 0, "training": training})
    ids = [f"q{i}" for i in range(100)]
    counts = {"d0": 1, "d1": 1, "d2": 6}
    rows = [(query, document, count) for query in ids for document, count in counts.items()]
    drawn = pd.DataFrame(rows, columns=PAIRS)
    # Of these queries nothing is known, so they say nothing.
    drawn = pd.concat([drawn, drawn.assign(query_id="x" + drawn.query_id)])
    equivalents = pd.DataFrame({"query_id": ids if relevant else []}, dtype=str)
    promotion = decided_first(
        trained,
        recipes=book,
        drawn_negatives=drawn,
        equivalents=equivalents.assign(document_id=relevant),
    )
    assert promotion["decision"] == decision
    assert reason in promotion["reasons"][1]


@pytest.mark.parametrize(
    ("bucket", "decision"),
    [("labelled", "promoted"), ("unlabelled", "kept"), ("new", "kept"), ("pseudo", "promoted")],
)
def test_a_loss_counts_for_itself_where_no_label_names_the_documents(
    trained: Path, bucket: str, decision: str
) -> None:
    ids = [f"q{i}" for i in range(200)]
    # The champion is asked no pseudo-queries.
    asked = ids[60 * (bucket == "pseudo") :]
    before = pd.DataFrame({"query_id": asked, "ndcg@10": 0.5, "system": "champion"})
    ndcg = [0.45] * 60 + [0.7] * 140
    challenger = pd.DataFrame({"query_id": ids, "ndcg@10": ndcg, "system": "hybrid"})
    buckets = pd.DataFrame({"query_id": ids, "bucket": [bucket] * 60 + ["labelled"] * 140})
    champion = FIRST | {"version": 1}
    promotion = decided(trained, champion, before, query_metrics=challenger, query_buckets=buckets)
    assert promotion["decision"] == decision
