"""The Elo pipeline as Kedro runs it, with and without a real pairwise judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kedro.io import DataCatalog, MemoryDataset
from kedro.runner import SequentialRunner
from tests.judging.conftest import SHOWN, Server, completion

from anmi.candidates import Candidates, CandidateShards, ColumnShards
from anmi.corpus.texts import document_texts
from anmi.engine import IN_PROCESS
from anmi.judging.pairwise import ChatJudge
from anmi.pipelines.elo.pipeline import create_pipeline
from anmi.pipelines.params import EloParams
from anmi.selection.recipe import recipe_book
from anmi.store import Store

BOOK = recipe_book({
    "by_elo": {"description": "By Elo.", "negatives": 2, "steps": {"elo_gap": {"danger": 100}, "random": {}}},
    "nearest": {"description": "Nearest.", "negatives": 2, "steps": {"top": {"by": "dense"}}},
})  # fmt: skip
QUERIES, WIDTH = 5, 8


def prefer_shorter(_: int, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    first, second = SHOWN.search(body["messages"][-1]["content"]).groups()[1:]  # type: ignore[union-attr]
    return 200, {}, completion("A" if (len(first), first) < (len(second), second) else "B")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


def candidates() -> Candidates:
    rng = np.random.default_rng(0)
    documents = np.stack([rng.permutation(30)[:WIDTH] for _ in range(QUERIES)]).astype(np.int32)
    return Candidates(
        query_ids=np.array([f"q{q}" for q in range(QUERIES)]),
        positives=(30 + np.arange(QUERIES, dtype=np.int32))[:, None],
        documents=documents,
        source=np.ones(documents.shape, np.uint8),
        columns={"dense": rng.normal(0.4, 0.1, documents.shape).astype(np.float32)},
        positive_columns={"dense": rng.normal(0.6, 0.1, (QUERIES, 1)).astype(np.float32)},
    )


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    words = ["fox", "whale", "owl", "pine", "river", "stone", "bread", "violin", "engine", "comet"]
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, 6)) for _ in range(30 + QUERIES)]
    corpus = pd.DataFrame({"document_id": [f"d{i}" for i in range(len(texts))], "title": "", "text": texts})
    ids = [f"q{q}" for q in range(QUERIES)]
    texts = [" ".join(rng.choice(words, 3)) for _ in ids]
    return corpus, pd.DataFrame({"query_id": ids, "text": texts, "split": "train"})


def run(params: EloParams, store: Store, recipe: str = "by_elo") -> tuple[Candidates, dict[str, Any]]:
    corpus, queries = tables()
    inputs = {
        "candidates": CandidateShards.of([candidates()]), "evidence": ColumnShards.none(),
        "judgments": ColumnShards.none(), "params:recipe": recipe, "params:recipes": BOOK,
        "params:elo": params, "params:seed": 3, "params:engine": IN_PROCESS,
        "corpus": corpus, "queries": queries, "store": store,
    }  # fmt: skip
    catalog = DataCatalog({name: MemoryDataset(value, copy_mode="assign") for name, value in inputs.items()})
    made = SequentialRunner().run(create_pipeline(), catalog)
    shards = inputs["candidates"].joined(made["ratings"].load())
    return shards.whole(), made["elo_summary"].load()


def test_without_a_pairwise_judge_scores_decide_and_the_summary_says_how(store: Store) -> None:
    rated, summary = run(EloParams(judges={"dense": 1.0}), store)
    assert np.isfinite(rated.columns["gap_se"]).all()
    for elo, dense in zip(rated.columns["elo"], rated.columns["dense"], strict=True):
        assert (np.argsort(elo) == np.argsort(dense)).all()
    assert set(summary) == {"temperatures", "slope", "votes", "options"} and summary["votes"] == 1.0


def test_a_recipe_that_reads_no_elo_asks_nobody(store: Store) -> None:
    nobody = {"reader": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}
    params = EloParams.model_validate({"pairwise": nobody, "pairwise_judges": {"reader": 1.0}})
    rated, summary = run(params, store, recipe="nearest")
    assert "elo" not in rated.columns and summary == {"temperatures": {}}


def test_a_pairwise_judge_reads_the_texts_and_its_answers_move_the_ratings(store: Store, server: Server) -> None:
    server.behave = prefer_shorter
    settings = {"base_url": f"http://127.0.0.1:{server.server_address[1]}/v1", "model": "m"}
    params = EloParams.model_validate({
        "judges": {}, "pairwise": {"reader": settings}, "pairwise_judges": {"reader": 1.0}, "degree": 8,
    })  # fmt: skip
    rated, _ = run(params, store)
    corpus, queries = tables()
    judge = ChatJudge(params.pairwise["reader"], store)
    texts = document_texts(corpus)
    for row, (elo, own) in enumerate(zip(rated.columns["elo"], rated.positive_columns["elo"][:, 0], strict=True)):
        # Nine documents at degree eight: everybody has met everybody, so mean preference gives the order.
        documents = [texts[int(d)] for d in (rated.positives[row, 0], *rated.documents[row])]
        a, b = np.triu_indices(len(documents), 1)
        wins = judge.prefer([queries.text[row]] * len(a), [documents[i] for i in a], [documents[i] for i in b])
        total = np.bincount(a, wins, len(documents)) + np.bincount(b, 1 - wins, len(documents))
        assert np.corrcoef(total, [own, *elo])[0, 1] > 0.99
    assert np.isfinite(rated.columns["gap_se"]).all()
