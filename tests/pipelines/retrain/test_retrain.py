"""What retraining is wired of, and what its nodes do with what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.pipeline import Pipeline

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

AUDITED = pd.DataFrame(
    {
        "recipe": ["mine", "other"],
        "false_negative_rate": [0.01, 0.5],
        "false_negative_rate_low": [0.005, 0.4],
        "false_negative_rate_high": [0.02, 0.6],
        "false_negatives": [10, 5],
        "negatives": [1000, 10],
        "failed": "",
    }
)
PAIRS = ["query_id", "document_id", "count"]
NOTHING_DRAWN = pd.DataFrame(columns=PAIRS)
BOOK = RecipeBook(mine={"description": "A recipe.", "negatives": 7, "steps": {"random": {}}})
EVALUATION = EvaluationParams(resamples=100)


def decided(
    champion: dict[str, Any],
    before: pd.DataFrame,
    mine: pd.DataFrame,
    audited: pd.DataFrame,
    trained: Path,
    book: RecipeBook = BOOK,
    drawn: pd.DataFrame = NOTHING_DRAWN,
    equivalents: pd.DataFrame = NOTHING_DRAWN,
    params: RetrainParams | None = None,
    buckets: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Ask the node with what these tests do not vary."""
    qrels = pd.DataFrame({"query_id": ["q0"], "document_id": ["own"], "relevance": [1]})
    return decide_promotion(
        champion,
        champion_metrics=before,
        query_metrics=mine,
        query_buckets=(
            mine[["query_id"]].assign(bucket="unlabelled") if buckets is None else buckets
        ),
        audited=audited,
        drawn=drawn,
        equivalents=equivalents,
        qrels=qrels,
        measured_model=trained,
        recipe="mine",
        recipes=book,
        training=TrainingParams(),
        params=params or RetrainParams(),
        evaluation=EVALUATION,
        seed=1,
    )


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


@pytest.fixture
def tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    corpus = pd.DataFrame({"document_id": ["d0", "d1"], "title": "", "text": ["night", "day"]})
    queries = pd.DataFrame(
        {
            "query_id": ["q0", "q1", "q2"],
            "text": ["night", "day", "x"],
            "split": ["test"] * 2 + ["train"],
        }
    )
    qrels = pd.DataFrame(
        {"query_id": ["q0", "q1", "q2"], "document_id": ["d0", "d1", "d1"], "relevance": 1}
    )
    return corpus, queries, qrels


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


def part(name: str, model: Path, corpus: pd.DataFrame, spread: float = 1.0) -> Part:
    """A retriever as a part of the search over a corpus."""
    encoder = Encoder(EncoderSettings(encoder=str(model), **ENCODER), model.parent)
    encoded = encoder.encode(corpus.text.tolist(), "document")
    index = build_index(encoded, corpus.document_id.tolist())
    return Part(name, index, encoder, spread)


def searching(corpus: pd.DataFrame, model: Path, *more: Part, **weights: float) -> HybridSearch:
    """The search over a corpus that a run leaves."""
    bm25 = Part("bm25", BM25Index.build(corpus.text.tolist(), "en", "whitespace"))
    return HybridSearch.build(
        [bm25, part("dense", model, corpus, 0.5), *more],
        corpus,
        weights=weights or HYBRID["weights"],
        depth=9,
    )


def ranked_by_parts(search: HybridSearch, tables: Any) -> pd.DataFrame:
    """What the parts of today's run rank for the test queries."""
    corpus, queries, qrels = tables
    return runs_of_parts(search, Split(corpus, queries[queries.split == "test"], qrels), 10)


@pytest.fixture
def nightly(
    registry: Any, trained: Path, tables: Any
) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """Go through the nodes of one night, and return decision and registration."""
    params = RetrainParams(model=f"anmi-{uuid4().hex[:8]}", rule={"min_queries": 2})
    search = searching(tables[0], trained)

    def night(
        meanwhile: Callable[[], object] = lambda: None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        champion, profile, run = evaluate_champion(
            *tables,
            collection="api_docs",
            params=params,
            registry=registry,
            evaluation=EVALUATION,
            dense=DenseParams(),
        )
        assert profile == ({} if champion["version"] is None else {"terms": 3})
        scores = score_champion(
            run,
            champion,
            part_runs=ranked_by_parts(search, tables),
            corpus=tables[0],
            queries=tables[1],
            qrels=tables[2],
            params=params,
            evaluation=EVALUATION,
        )
        mine = pd.DataFrame({"query_id": ["q0", "q1"], "ndcg@10": 1.0, "system": "hybrid"})
        made = decided(champion, scores, mine, AUDITED, trained, params=params)
        meanwhile()
        info = {"collection": "api_docs"}
        done = register_challenger(
            trained,
            measured_model=trained,
            promotion=made,
            champion=champion,
            training_profile={"terms": 3},
            info=info,
            encoder="static",
            recipe="mine",
            dense=DenseParams(),
            registry=registry,
            search_index=search,
            measured_search=search,
        )
        return made, done

    night.model = params.model  # type: ignore[attr-defined]
    return night


def test_nights_follow_each_other(nightly: Any, registry: Any) -> None:
    first, registered = nightly()
    assert (first["decision"], registered["champion"]) == ("promoted", 1)
    entry = registry.at(nightly.model, CHAMPION)
    assert [entry.tags[tag] for tag in ("recipe", "run_id")] == ["mine", "2030-01-01T00.00.00.000Z"]
    assert entry.tags["fingerprint"] == first["fingerprint"]
    second, registered = nightly()
    assert (second["decision"], second["promotion"]["difference"], second["champion"]) == (
        "promoted",
        0,
        1,
    )
    assert (registered["champion"], registered["champion_before"]) == (2, 1)
    _, registered = nightly(meanwhile=nightly)
    assert (registered["decision"], registered["version"], registered["champion"]) == ("kept", 4, 3)


def test_what_was_rolled_back_is_not_promoted_again(nightly: Any, registry: Any) -> None:
    nightly()
    registry.note(registry.entry(nightly.model, 1), ROLLED_BACK, "2030-01-01")
    made, registered = nightly()
    assert (made["decision"], registered["champion"]) == ("kept", 1)
    assert "version 1, which was rolled back" in made["reasons"][-1]


FIRST = {"version": None, "rolled_back": {}}
PERFECT = pd.DataFrame({"query_id": ["q0", "q1"], "ndcg@10": 1.0, "system": "hybrid"})


def first_night(
    registry: Any,
    tables: Any,
    folder: Path,
    search: HybridSearch,
    dense: DenseParams,
    fetched: Path,
    served: Path | None = None,
) -> tuple[dict[str, Any], Path, dict[str, Any], pd.DataFrame]:
    """Register a first champion; return the decision, its files, and what the next night knows of it and its run."""
    params = RetrainParams(model=f"anmi-{uuid4().hex[:8]}")
    champion = FIRST | {"model": params.model}
    promotion = decided(champion, pd.DataFrame(), PERFECT, AUDITED, folder, params=params)
    register_challenger(
        served or folder,
        measured_model=folder,
        promotion=promotion,
        champion=champion,
        training_profile={},
        info={"collection": "api_docs"},
        encoder="static",
        recipe="mine",
        dense=dense,
        registry=registry,
        search_index=searching(tables[0], served) if served else search,
        measured_search=search,
    )
    known, _, run = evaluate_champion(
        *tables,
        collection="api_docs",
        params=params,
        registry=registry,
        evaluation=EVALUATION,
        dense=dense,
    )
    return promotion, registry.fetch(registry.at(params.model, CHAMPION), fetched), known, run


def test_a_champion_keeps_its_prompts_whatever_todays_challenger_is_trained_with(
    registry: Any, tables: Any, word_encoder: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "2030-01-01" / "trained_model"
    own = {"query": "query ", "document": "passage "}
    model = word_encoder(["night", "day", "query", "passage", "find"], prompts=own)
    model.save(str(folder), create_model_card=False)
    asked_otherwise = DenseParams(prompt_query="find ", prompt_document="", precision="float32")
    search = searching(tables[0], folder)
    _, fetched, known, run = first_night(
        registry, tables, folder, search, asked_otherwise, tmp_path / "room"
    )
    assert read_beside(fetched, SERVING) == {
        "dimensions": None,
        "max_length": 256,
        "precision": "float32",
        "prompt_query": "query ",
        "prompt_document": "passage ",
        "hybrid": HYBRID,
    }
    expected = model.encode_query(["night", "day"]) @ model.encode_document(["night", "day"]).T
    found = run.sort_values(["query_id", "document_id"]).score.to_numpy().reshape(2, 2)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert known["hybrid"] == HYBRID


def test_a_champion_is_compared_by_the_model_that_was_measured_and_serves_the_final_one(
    registry: Any, tables: Any, trained: Path, word_encoder: Any, tmp_path: Path
) -> None:
    final = word_encoder(["night", "day"], seed=1)
    served = tmp_path / "final" / "trained_model"
    final.save(str(served), create_model_card=False)
    search = searching(tables[0], trained)
    promotion, fetched, known, run = first_night(
        registry, tables, trained, search, DenseParams(), tmp_path / "room", served
    )
    registered = [fingerprint_of(place / WEIGHTS) for place in (fetched, fetched / MEASURED)]
    assert registered == [fingerprint_of(served), fingerprint_of(trained)]
    assert promotion["fingerprint"] == registered[1]
    model = load_encoder(str(trained), trained.parent)
    expected = model.encode_query(["night", "day"]) @ model.encode_document(["night", "day"]).T
    found = run.sort_values(["query_id", "document_id"]).score.to_numpy().reshape(2, 2)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert known["hybrid"] == HYBRID


def test_a_champion_keeps_its_companion(
    registry: Any, tables: Any, trained: Path, word_encoder: Any, tmp_path: Path
) -> None:
    plain = decided(FIRST, pd.DataFrame(), PERFECT, AUDITED, trained)["fingerprint"]
    words = word_encoder(["night", "day"])
    inference_free(words, tables[0].text.tolist()).save(
        str(trained / "companion"), create_model_card=False
    )
    companion = part("sparse", trained / "companion", tables[0])
    search = searching(tables[0], trained, companion, bm25=0.25, dense=0.25, sparse=0.5)
    promotion, folder, known, runs = first_night(
        registry, tables, trained, search, DenseParams(), tmp_path / "room"
    )
    assert promotion["fingerprint"] != plain, (
        "the same model with a companion is another challenger"
    )
    assert set(known["hybrid"]["weights"]) == {"bm25", "dense", "sparse"}
    assert runs.groupby("retriever").size().to_dict() == {"dense": 4, "sparse": 2}
    assert (folder / "companion" / "MLmodel").is_file(), "MLflow serves it, too"
    shared: dict[str, Any] = {
        "part_runs": ranked_by_parts(search, tables),
        "corpus": tables[0],
        "queries": tables[1],
        "qrels": tables[2],
        "evaluation": EVALUATION,
    }
    for system in ("hybrid", "dense"):
        expected = search.ranked(["night", "day"], 2, system)
        found = score_champion(runs, known, params=RetrainParams(rule={"system": system}), **shared)
        place = [row.index(own) for own, row in enumerate(expected.documents.tolist())]
        assert found["mrr@10"].tolist() == [1 / (rank + 1) for rank in place]


def test_a_champion_is_measured_with_the_parts_of_todays_run_that_need_no_training(
    registry: Any, tables: Any, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = part("network", trained, tables[0])
    encoded: Any = network.index
    # It takes each document for the other, and outweighs those that are right.
    wrong = build_index(encoded.vectors()[::-1].copy(), tables[0].document_id.tolist())
    network = replace(network, index=wrong)
    search = searching(tables[0], trained, network, bm25=0.1, dense=0.1, network=0.8)
    _, _, known, runs = first_night(
        registry, tables, trained, search, DenseParams(), tmp_path / "room"
    )
    assert known["hybrid"]["spreads"] == {"dense": 0.5}, "others have those of the day"
    shared: dict[str, Any] = {
        **dict(zip(("corpus", "queries", "qrels"), tables, strict=True)),
        "params": RetrainParams(),
        "evaluation": EVALUATION,
    }
    part_runs = ranked_by_parts(search, tables)
    found = score_champion(runs, known, part_runs=part_runs, **shared)
    assert search.ranked(["night", "day"], 2).documents.tolist() == [[1, 0], [0, 1]]
    assert found["mrr@10"].tolist() == [0.5, 0.5]
    assert "measured without" not in caplog.text
    without = part_runs[part_runs.part != "network"]
    found = score_champion(runs, known, part_runs=without, **shared)
    assert found["mrr@10"].tolist() == [1, 1]
    assert "The champion is measured without its parts network, which this run" in caplog.text


def test_where_nothing_can_be_planted_labels_alone_decide(trained: Path) -> None:
    made = decided(FIRST, pd.DataFrame(), PERFECT, pd.DataFrame(), trained)
    assert made["decision"] == "promoted"
    assert "planting measures no false negatives" in made["reasons"][1]


def test_promotion_goes_by_the_upper_end_of_the_interval_of_the_own_recipe(trained: Path) -> None:
    assert (rate_of(AUDITED, "mine").count, rate_of(AUDITED, "mine").negatives) == (10, 1000)
    assert "no row of recipe" in rate_of(AUDITED, "third").failed
    doubted = AUDITED.assign(false_negative_rate_high=0.06)
    assert decided(FIRST, pd.DataFrame(), PERFECT, AUDITED, trained)["decision"] == "promoted"
    made = decided(FIRST, pd.DataFrame(), PERFECT, doubted, trained)
    assert (
        made["decision"] == "kept"
        and "10 are relevant (1.00%, 95 % interval over queries" in made["reasons"][1]
    )


@pytest.mark.parametrize(
    ("relevant", "decision", "reason"),
    [
        ("d9", "promoted", "of 800 drawn negatives 0 are relevant (0.00%"),
        ("d1", "kept", "of 800 drawn negatives 100 are relevant (12.50%"),
        (
            "",
            "kept",
            (
                "the false-negative rate of the recipe is not known: training drew its negatives"
                " from the whole"
            ),
        ),
    ],
)
def test_a_recipe_that_draws_from_the_corpus_is_judged_by_what_it_drew(
    trained: Path, relevant: str, decision: str, reason: str
) -> None:
    """It chooses nothing before training, so an audit has no row of it."""
    book = RecipeBook(
        mine={
            "description": "Drawn.",
            "negatives": 0,
            "training": {"sources": "mixed", "negatives": 4},
        }
    )
    ids = [f"q{i}" for i in range(100)]
    drawn = pd.DataFrame(
        [(q, name, n) for q in ids for name, n in (("d0", 1), ("d1", 1), ("d2", 6))], columns=PAIRS
    )
    # Of these queries nothing is known, so they say nothing.
    drawn = pd.concat([drawn, drawn.assign(query_id="x" + drawn.query_id)])
    known = pd.DataFrame(
        {"query_id": ids if relevant else [], "document_id": relevant or []}, dtype=str
    )
    made = decided(FIRST, pd.DataFrame(), PERFECT, AUDITED, trained, book, drawn, known)
    assert made["decision"] == decision
    assert reason in made["reasons"][1]


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
    mine = pd.DataFrame({"query_id": ids, "ndcg@10": [0.45] * 60 + [0.7] * 140, "system": "hybrid"})
    kinds = pd.DataFrame({"query_id": ids, "bucket": [bucket] * 60 + ["labelled"] * 140})
    assert (
        decided(FIRST | {"version": 1}, before, mine, AUDITED, trained, buckets=kinds)["decision"]
        == decision
    )
