"""Fitting a weight: metrics as trec_eval has them, and robust with few queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from anmi.evaluation.metrics import evaluate
from anmi.evaluation.retrieval import run_table
from anmi.retrieval.fusion import Ranked, fuse
from anmi.search.fit import Measured, fit_weights

DOCUMENTS = [f"d{i:02d}" for i in range(40)]


def made(count: int, seed: int, good: float) -> tuple[Ranked, Ranked, np.ndarray]:
    """Lists of 12 of 40 documents, in which the dense part has the answer on top with the chance ``good``."""
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, 40, count)
    parts = []
    for chance in (0.5, good):
        documents = np.array([rng.permutation(40)[:12] for _ in range(count)], np.int32)
        for row, answer in zip(documents, answers, strict=True):
            if rng.random() < chance:
                row[row == answer] = row[0]
                row[0] = answer
        parts.append(
            Ranked(documents, -np.sort(-rng.random((count, 12)), axis=1).astype(np.float32))
        )
    return parts[0], parts[1], answers[:, None].astype(np.int32)


def test_the_curve_is_what_trec_eval_says_of_the_fused_runs() -> None:
    bm25, dense, answers = made(25, 0, 0.6)
    # Graded, and a second label for some.
    others = np.where(np.arange(25) % 3 == 0, (answers[:, 0] + 1) % 40, -1)[:, None].astype(
        np.int32
    )
    labelled = np.concatenate([answers, others], axis=1)
    grades = np.where(labelled >= 0, [[2.0, 1.0]], 0).astype(np.float32)
    names = [f"q{i}" for i in range(25)]
    rows = [
        (name, DOCUMENTS[d], int(g))
        for name, ds, gs in zip(names, labelled, grades, strict=True)
        for d, g in zip(ds, gs, strict=True)
        if d >= 0
    ]
    qrels = pd.DataFrame(rows, columns=["query_id", "document_id", "relevance"])
    third = made(25, 7, 0.4)[1]
    lists = {"bm25": bm25, "dense": dense, "sparse": third}
    spreads = {"bm25": np.linspace(0.5, 2, 25), "dense": 0.4, "sparse": 0.7}
    measured = Measured(lists, spreads, labelled, grades, np.ones(25))
    for point in ((1, 0, 0), (0.3, 0.3, 0.4), (0, 0.5, 0.5), (0.1, 0.8, 0.1)):
        found = fuse(lists, 30, spreads, weights=dict(zip(lists, point, strict=True)))
        table = evaluate(qrels, run_table(names, DOCUMENTS, found.documents, found.scores), (10,))
        np.testing.assert_allclose(measured.ndcg(point), table["ndcg@10"].loc[names], atol=1e-6)
    fitted = fit_weights(lists, spreads, labelled, grades, np.ones(25, bool), documents=0, seed=1)
    for name, part in lists.items():
        table = evaluate(qrels, run_table(names, DOCUMENTS, *part), (10,))
        assert fitted["ndcg@10"][name] == pytest.approx(table["ndcg@10"].mean(), abs=5.1e-5)
    found = fuse(lists, 30, spreads, weights=fitted["weights"])
    table = evaluate(qrels, run_table(names, DOCUMENTS, found.documents, found.scores), (10,))
    assert fitted["ndcg@10"]["hybrid"] == pytest.approx(table["ndcg@10"].mean(), abs=5.1e-5)


def fitted(count: int, good: float, unlabelled: Any = None, seed: int = 0) -> Any:
    bm25, dense, answers = made(count, seed, good)
    unlabelled = np.ones(count, bool) if unlabelled is None else unlabelled
    grades = np.ones(answers.shape, np.float32)
    spreads = {"bm25": np.full(count, 0.3), "dense": 0.3}
    return fit_weights(
        {"bm25": bm25, "dense": dense}, spreads, answers, grades, unlabelled, documents=0, seed=1
    )


def test_the_better_part_gets_the_weight() -> None:
    better, worse = fitted(300, 0.95), fitted(300, 0.05)
    assert worse["weights"]["dense"] < 0.35 and better["weights"]["dense"] > 0.65
    assert worse["low"]["dense"] <= worse["weights"]["dense"] <= worse["high"]["dense"]
    assert better["queries"] == 300
    both = fitted(300, 0.7)
    assert both["without"]["dense"] < both["ndcg@10"]["hybrid"]
    assert both["without"]["dense"] == both["ndcg@10"]["bm25"]


def test_of_three_parts_the_useless_one_gets_least() -> None:
    bm25, dense, answers = made(300, 0, 0.8)
    noise, helpful = made(300, 5, 0.02)[1], made(300, 0, 0.8)[1]
    grades = np.ones(answers.shape, np.float32)
    for third, useful in ((noise, False), (helpful, True)):
        lists = {"bm25": bm25, "dense": dense, "sparse": third}
        found = fit_weights(lists, {}, answers, grades, np.ones(300, bool), documents=0, seed=1)
        assert (
            sum(found["weights"].values()) == pytest.approx(1)
            and min(found["weights"].values()) >= 0
        )
        assert (found["weights"]["sparse"] > 0.15) is useful
        assert found["ndcg@10"]["hybrid"] >= max(found["ndcg@10"][name] for name in lists) - 0.01


def test_queries_about_labelled_documents_count_at_most_as_much_as_the_others() -> None:
    bm25, dense, answers = made(200, 0, 0.0)
    right = made(200, 0, 1.0)[1]
    unlabelled = np.arange(200) < 50
    # What was trained knows the documents with a label, and no others.
    lists = Ranked(
        np.where(unlabelled[:, None], dense.documents, right.documents),
        np.where(unlabelled[:, None], dense.scores, right.scores),
    )
    grades = np.ones(answers.shape, np.float32)
    spreads = {"bm25": np.full(200, 0.3), "dense": 0.3}

    def weight(is_unlabelled: Any) -> float:
        parts = {"bm25": bm25, "dense": lists}
        fit = fit_weights(parts, spreads, answers, grades, is_unlabelled, documents=0, seed=1)
        assert (fit["queries"], fit["unlabelled"]) == (200, is_unlabelled.sum())
        return float(fit["weights"]["dense"])

    assert weight(unlabelled) < weight(np.ones(200, bool))
    assert weight(np.zeros(200, bool)) == weight(np.ones(200, bool))


def test_a_part_alone_has_all_the_weight() -> None:
    bm25, _, answers = made(20, 0, 0.5)
    grades = np.ones(answers.shape, np.float32)
    fit = fit_weights({"bm25": bm25}, {}, answers, grades, np.ones(20, bool), documents=0, seed=1)
    assert fit["weights"] == fit["low"] == fit["high"] == {"bm25": 1.0}
    assert fit["ndcg@10"]["bm25"] == fit["ndcg@10"]["hybrid"] > 0 and not fit["without"]


def test_without_queries_parts_have_the_prior() -> None:
    found = fitted(0, 0.5)
    assert found["weights"] == {"bm25": 0.7, "dense": 0.3}
    assert (found["unlabelled"], found["queries"]) == (0, 0)


def width(found: dict[str, Any]) -> float:
    return found["high"]["dense"] - found["low"]["dense"]


def test_few_queries_decide_less_and_are_less_sure() -> None:
    few = [fitted(6, 0.9, seed=seed) for seed in range(12)]
    many = [fitted(600, 0.9, seed=seed) for seed in range(3)]
    assert np.mean(list(map(width, few))) > 2 * np.mean(list(map(width, many)))
    assert np.mean([found["weights"]["dense"] for found in few]) < np.mean(
        [found["weights"]["dense"] for found in many]
    )
